// Package fusetest mounts file systems that are to the kernel what sshfs and its
// like are, with nothing in them.
package fusetest

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Mount mounts an empty FUSE file system of that type, where root may, until the
// test ends.
func Mount(t testing.TB, kind, source, dir string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount(source, dir, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fd)
		t.Skipf("needs the right to mount a FUSE file system: %v", err)
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
				if out := answer(buf[:n]); out != nil {
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

// answer answers what stat and statfs of the root need (linux/fuse.h).
func answer(in []byte) []byte {
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
