package sqlitestore

import (
	"os"

	"golang.org/x/sys/unix"
)

// fileSystemKind is what the list of mounts calls the file system of path;
// empty if it is not known.
func fileSystemKind(path string) string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	return mountOf(f, unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))).kind
}
