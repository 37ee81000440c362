package sqlitestore

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// fileSystemOf asks statfs(2) for the file system's name.
func fileSystemOf(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	switch name := unix.ByteSliceToString(st.Fstypename[:]); name {
	case "nfs", "smbfs", "afpfs", "webdav", "ftp", "acfs":
		return name, nil
	}
	return "", nil
}
