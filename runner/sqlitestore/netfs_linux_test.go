package sqlitestore

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/fusetest"
)

func TestFileSystem_WhenByMagic_KnowsNetworks(t *testing.T) {
	for magic, want := range map[uint32]string{
		0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "CIFS", 0x01021997: "9p", 0x5346414f: "AFS", 0x6b414653: "AFS",
		0x00c36400: "Ceph", 0x73757245: "Coda", 0x564c: "NCP", 0x7461636f: "OCFS2", 0x01161970: "GFS2", 0x0bd00bd0: "Lustre",
		0x47504653: "GPFS", 0x19830326: "BeeGFS",
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x01021994: "", 0x794c7630: "", 0x2fc12fc1: "", 0xf2f52010: "", 0xca451a4e: "",
	} {
		if got := networkByMagic(magic); got != want {
			t.Errorf("networkByMagic(%#x) = %q, want %q", magic, got, want)
		}
	}
}

const mountinfo = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:26 / /home/ann/remote rw,nosuid,nodev,relatime shared:5 - fuse.sshfs ann@build:/srv rw,user_id=1000,group_id=1000
31 22 0:27 / /mnt/with\040space rw,relatime master:3 propagate_from:2 - fuse.mergerfs a:b rw,user_id=0
32 22 0:28 / /mnt/dav rw - fuse https://dav.example.net/x rw
33 22 8:17 / /media/usb rw - fuseblk /dev/sdb1 rw
garbage
34 22 0:29 / /mnt/secret rw - fuse.gocryptfs /home/ann/cipher rw
`

func TestFileSystem_WhenFUSE_GoesByTypeAndSource(t *testing.T) {
	for device, want := range map[[2]uint32]string{
		{0, 26}: "sshfs", {0, 27}: "", {0, 28}: "fuse from https://dav.example.net/x", {8, 17}: "", {0, 29}: "", {0, 99}: "",
	} {
		if got := networkFUSE(mountOf(strings.NewReader(mountinfo), device[0], device[1])); got != want {
			t.Errorf("device %v: %q, want %q", device, got, want)
		}
	}
}

func TestFileSystem_WhenLocal_IsNotRefused(t *testing.T) {
	for _, path := range []string{t.TempDir(), mountTmpfs(t, 0, "")} {
		mustWin(t, open(t, Config{Path: filepath.Join(path, "a", "b", "oncectl.db")}), "a")
	}
}

// TestStore_WhenOnANetworkFileSystem_IsRefused mounts a real one, as sshfs
// mounts it.
func TestStore_WhenOnANetworkFileSystem_IsRefused(t *testing.T) {
	dir := t.TempDir()
	fusetest.Mount(t, "fuse.sshfs", "ann@build:/srv", dir)
	for _, path := range []string{filepath.Join(dir, "oncectl.db"), filepath.Join(dir, "a", "b", "oncectl.db")} {
		_, err := Open(Config{Path: path})
		wantError(t, err, runner.ErrRefused, "is on a network file system (sshfs)")
		wantError(t, err, runner.ErrRefused, "ONCECTL_STATE_DIR")
	}
}

// TestStore_WhenItsLocksAreOnANetworkFileSystem_IsRefused: the database is on a
// local disk, its lock folder is not.
func TestStore_WhenItsLocksAreOnANetworkFileSystem_IsRefused(t *testing.T) {
	s := open(t, Config{Path: freshPath(t)})
	mustWin(t, s, "a")
	s.fs = func(path string) (string, error) {
		if strings.HasPrefix(path, s.lockDir()) {
			return "NFS", nil
		}
		return "", nil
	}
	_, err := s.TryLock(t.Context(), nightly)
	wantError(t, err, runner.ErrRefused, "(NFS)")
	s.fs = fileSystemOf
	mustTake(t, s) // the refused try has let the lock go
}
