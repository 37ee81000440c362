package sqlitestore

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fuseMagic is the f_type of everything that is a FUSE file system, local or
// not.
const fuseMagic = unix.FUSE_SUPER_MAGIC

// fileSystemOf asks statfs(2), and for FUSE, which has one type for all, the
// list of mounts.
func fileSystemOf(path string) (string, error) {
	var st unix.Statfs_t
	if err := statfs(path, &st); err != nil {
		return "", &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	magic := uint32(st.Type)
	if magic != fuseMagic {
		return networkByMagic(magic), nil
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", nil // no /proc: no way to tell
	}
	defer f.Close()
	var at unix.Stat_t
	if err := unix.Stat(path, &at); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return networkFUSE(mountOf(f, unix.Major(at.Dev), unix.Minor(at.Dev))), nil
}

func statfs(path string, st *unix.Statfs_t) error {
	for {
		if err := unix.Statfs(path, st); err != unix.EINTR {
			return err
		}
	}
}

// networkByMagic names the network file systems by their f_type: statfs(2),
// linux/magic.h and, for those outside the kernel, their own sources.
func networkByMagic(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.SMB_SUPER_MAGIC:
		return "SMB"
	case 0xff534d42, unix.SMB2_SUPER_MAGIC: // CIFS_SUPER_MAGIC
		return "CIFS"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS"
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph"
	case unix.CODA_SUPER_MAGIC:
		return "Coda"
	case 0x564c: // NCP_SUPER_MAGIC
		return "NCP"
	case unix.OCFS2_SUPER_MAGIC:
		return "OCFS2"
	case 0x01161970: // GFS2_MAGIC
		return "GFS2"
	case 0x0bd00bd0: // LL_SUPER_MAGIC, lustre_user.h
		return "Lustre"
	case 0x47504653: // "GPFS"
		return "GPFS"
	case 0x19830326: // BEEGFS_MAGIC, formerly FhGFS
		return "BeeGFS"
	case 0xaad7aaea: // PANFS_SUPER_MAGIC
		return "PanFS"
	case 0x013111a8, 0x013111a7: // IBRIX, coreutils' fs.h
		return "Ibrix"
	case 0xbacbacbc: // VMHGFS_SUPER_MAGIC
		return "VMware shared folder"
	case 0x786f4256: // VBOXSF_SUPER_MAGIC
		return "VirtualBox shared folder"
	}
	return ""
}

// mount is what mountinfo says of one: its type and source.
type mount struct{ kind, source string }

// mountOf finds the mount of a device in the form of /proc/self/mountinfo
// (proc(5)): … major:minor … - type source options.
func mountOf(mountinfo io.Reader, major, minor uint32) mount {
	device := fmt.Sprintf("%d:%d", major, minor)
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if ok && len(head) > 2 && len(tail) > 1 && head[2] == device {
			return mount{kind: tail[0], source: tail[1]}
		}
	}
	return mount{}
}

// networkFUSE names the FUSE file systems whose files are elsewhere: the known
// ones, and those whose source looks like host:/path or a URL.
func networkFUSE(m mount) string {
	if m.kind == "fuseblk" {
		return "" // a local block device
	}
	switch kind := strings.TrimPrefix(m.kind, "fuse."); kind {
	case "sshfs", "glusterfs", "s3fs", "rclone", "gcsfuse", "goofys", "geesefs", "mountpoint-s3", "blobfuse", "blobfuse2",
		"ceph", "ceph-fuse", "juicefs", "seaweedfs", "mfs", "mfsmount", "moosefs", "lizardfs", "saunafs", "davfs", "davfs2", "curlftpfs",
		"smbnetfs", "afpfs", "cvmfs", "cvmfs2", "hdfs", "fuse_dfs", "fuse-nfs", "quobyte", "objectivefs", "ossfs", "cosfs", "obsfs", "s3ql",
		"vmhgfs-fuse", "gvfsd-fuse", "google-drive-ocamlfuse", "onedriver", "alluxio-fuse", "curvefs", "cubefs", "oci-fss", "grpcfuse":
		return kind
	}
	if strings.Contains(m.source, ":/") {
		return m.kind + " from " + m.source
	}
	return ""
}
