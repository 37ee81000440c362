//go:build unix && !linux

package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func self() (string, error) { return os.Executable() }

// pipe returns both ends, close-on-exec and blocking.
func pipe() (r, w int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return 0, 0, err
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return p[0], p[1], nil
}

// socketpair returns two connected stream sockets, close-on-exec.
func socketpair() (a, b int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, 0, err
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return p[0], p[1], nil
}

func foregroundGroup(tty *os.File) (group int, err error) {
	err2 := control(tty, func(fd int) { group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP) })
	if err == nil {
		err = err2
	}
	return group, err
}
