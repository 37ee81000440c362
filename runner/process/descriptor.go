package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// control calls f with the descriptor of file, which must not be nil. Unlike
// File.Fd it leaves O_NONBLOCK alone: that flag belongs to the open file, which
// the command, the lock's connection or another process may share.
func control(file *os.File, f func(fd int)) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// number is the descriptor of file, -1 if it has none. It is valid as long as
// the caller keeps file open and referenced.
func number(file *os.File) int {
	n := -1
	if file != nil {
		_ = control(file, func(fd int) { n = fd })
	}
	return n
}

// kind is the type bits of what fd refers to, 0 if it refers to nothing.
func kind(fd int) uint32 {
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil {
		return 0
	}
	return uint32(st.Mode) & unix.S_IFMT
}

// sameFile reports whether two descriptors refer to one pipe, socket or file,
// so that what is written to both has an order.
func sameFile(a, b int) bool {
	var s, t unix.Stat_t
	if a < 0 || b < 0 || unix.Fstat(a, &s) != nil || unix.Fstat(b, &t) != nil {
		return false
	}
	return s.Dev == t.Dev && s.Ino == t.Ino
}

// isTerminal reports whether fd is a terminal.
func isTerminal(fd int) bool {
	_, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	return err == nil
}

// writeAll writes p to fd, also where somebody has made it non-blocking.
func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if n > 0 {
			p = p[n:]
		}
		switch err {
		case nil, unix.EINTR:
		case unix.EAGAIN:
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
		default:
			return err
		}
	}
	return nil
}
