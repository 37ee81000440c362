package sqlitestore

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
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
	serveFUSE(t, "fuse.sshfs", "ann@build:/srv", dir)
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

// serveFUSE mounts an empty FUSE file system of that type, where root may.
func serveFUSE(t *testing.T, kind, source, dir string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("opening /dev/fuse: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount(source, dir, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fd)
		t.Skipf("mounting a FUSE file system: %v", err)
	}
	var server sync.WaitGroup
	server.Go(func() {
		buf := make([]byte, 1<<20)
		for {
			n, err := unix.Read(fd, buf)
			switch {
			case err == unix.EINTR || err == unix.EAGAIN:
			case err != nil:
				return // unmounted
			default:
				if out := answerFUSE(buf[:n]); out != nil {
					unix.Write(fd, out)
				}
			}
		}
	})
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		server.Wait()
		unix.Close(fd)
	})
}

// answerFUSE answers what stat and statfs of the root need (linux/fuse.h).
func answerFUSE(in []byte) []byte {
	le := binary.LittleEndian
	const lookup, forget, getattr, statfs, initialise, destroy = 1, 2, 3, 17, 26, 38
	var body []byte
	var errno int32
	switch le.Uint32(in[4:]) {
	case forget:
		return nil
	case initialise:
		body = make([]byte, 64)
		le.PutUint32(body[0:], 7)
		le.PutUint32(body[4:], 31)
		le.PutUint32(body[20:], 4096) // max_write
	case getattr:
		body = make([]byte, 104)
		le.PutUint64(body[0:], uint64(time.Hour/time.Second))
		le.PutUint64(body[16:], 1)                     // ino
		le.PutUint32(body[16+60:], unix.S_IFDIR|0o755) // mode
		le.PutUint32(body[16+64:], 2)                  // nlink
	case statfs:
		body = make([]byte, 80)
		le.PutUint32(body[40:], 4096)
		le.PutUint32(body[44:], 255)
	case destroy:
	case lookup:
		errno = -int32(unix.ENOENT)
	default:
		errno = -int32(unix.ENOSYS)
	}
	out := make([]byte, 16, 16+len(body))
	le.PutUint32(out[0:], uint32(16+len(body)))
	le.PutUint32(out[4:], uint32(errno))
	copy(out[8:16], in[8:16])
	return append(out, body...)
}
