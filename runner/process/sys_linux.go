package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// self is this binary, also after its file was replaced by an upgrade.
func self() (string, error) { return "/proc/self/exe", nil }

// pipe returns both ends, close-on-exec and blocking.
func pipe() (r, w int, err error) {
	var p [2]int
	err = unix.Pipe2(p[:], unix.O_CLOEXEC)
	return p[0], p[1], err
}

// socketpair returns two connected stream sockets, close-on-exec.
func socketpair() (a, b int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return p[0], p[1], err
}

func foregroundGroup(tty *os.File) (group int, err error) {
	err2 := control(tty, func(fd int) {
		var v uint32
		v, err = unix.IoctlGetUint32(fd, unix.TIOCGPGRP)
		group = int(v)
	})
	if err == nil {
		err = err2
	}
	return group, err
}
