//go:build linux

package broker

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAllowed_WhenThePeerIsRootOrTheSameUser_AndNobodyElse(t *testing.T) {
	for _, c := range []struct {
		peer uint32
		own  int
		want bool
	}{{0, 1000, true}, {1000, 1000, true}, {1001, 1000, false}, {65534, 0, false}, {1<<32 - 1, -1, false}, {0, 0, true}} {
		if got := allowed(c.peer, c.own); got != c.want {
			t.Errorf("allowed(%d, %d) = %v", c.peer, c.own, got)
		}
	}
}

// Somebody has opened the folder to all: the server still looks at who connects.
func TestServer_WhenAnotherUserConnects_HangsUpBeforeReading(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to connect as another user")
	}
	m := newMemory()
	s := serving(t, m)
	for dir := filepath.Dir(s.Path()); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(s.Path(), 0o666); err != nil {
		t.Fatal(err)
	}
	answer, err := askAs(65534, s.Path(), "POST /claim/a HTTP/1.1\r\nHost: oncectl\r\n\r\n")
	if answer != "" || err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("another user was answered %q, %v", answer, err)
	}
	if len(m.requests()) > 0 {
		t.Error("another user's claim reached the store")
	}
	answer, err = askAs(0, s.Path(), "POST /claim/a HTTP/1.1\r\nHost: oncectl\r\nConnection: close\r\n\r\n")
	if err != nil || len(m.requests()) != 1 {
		t.Errorf("the same user was answered %q, %v", answer, err)
	}
}

// askAs connects as uid, which is what the kernel tells the server of the
// thread that calls connect(2), and reads to the end.
func askAs(uid int, path, request string) (answer string, err error) {
	type reply struct {
		answer string
		err    error
	}
	done := make(chan reply)
	go func() {
		// Not unlocked: the thread ends with the goroutine, and with it the uid.
		runtime.LockOSThread()
		var r reply
		defer func() { done <- r }()
		const keep = ^uintptr(0)
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); e != 0 {
			r.err = e
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			r.err = err
			return
		}
		tv := unix.NsecToTimeval(int64(patience))
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			unix.Close(fd)
			r.err = err
			return
		}
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		if _, err := f.WriteString(request); err != nil {
			r.err = err
			return
		}
		b, err := io.ReadAll(f)
		r.answer, r.err = string(b), err
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-time.After(2 * patience):
		return "", errors.New("no answer in time")
	}
}
