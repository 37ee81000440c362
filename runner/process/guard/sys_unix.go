//go:build unix

package guard

import "syscall"

// send sends sig to a process, or to a group by its negative number. That it
// is dead already is no error.
func send(pid int, sig syscall.Signal) syscall.Errno {
	err := syscall.Kill(pid, sig)
	if err == nil || err == syscall.ESRCH {
		return 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return errno
	}
	return syscall.EINVAL
}
