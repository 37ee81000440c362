package guard

import (
	"syscall"
	"unsafe"
)

const (
	sendFlags = syscall.MSG_NOSIGNAL
	recvFlags = syscall.MSG_CMSG_CLOEXEC
	waitFlags = syscall.WUNTRACED | syscall.WCONTINUED | syscall.WALL
)

const (
	prSetName           = 15
	prSetChildSubreaper = 36
)

// Subreap makes this process the one to which orphans among its descendants
// fall.
func Subreap() {
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
}

// becomeGuard gives the process its name and keeps it alive when somebody
// tells everything named oncectl, or everything in a control group, to end:
// oncectl gets that signal too, and it is for oncectl to end the job. Go's
// fork gives the command the default dispositions again, except for HUP and
// INT that were ignored when oncectl was started.
func becomeGuard() {
	Subreap()
	name := [16]byte{}
	copy(name[:15], "oncectl-guard")
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&name)), 0)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		setDisposition(sig, sigIgn)
	}
}

const (
	sigDfl = 0
	sigIgn = 1
)

// setDisposition changes what the kernel does with sig behind the back of Go's
// runtime. The kernel's struct sigaction begins with the handler everywhere
// but on MIPS, where the flags do; all else is zero.
func setDisposition(sig syscall.Signal, handler uintptr) {
	var action [8]uintptr
	action[handlerWord] = handler
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, sigsetSize, 0, 0)
}

// DieOf ends this process by sig, without Go's own treatment of it (a dump of
// all stacks for SIGQUIT). It returns if that does not work, as in PID 1.
func DieOf(sig syscall.Signal) {
	setDisposition(sig, sigDfl)
	_ = syscall.Kill(syscall.Getpid(), sig)
	sleep(50e6)
}

// childAttr lets the command die with its guard. The signal comes when the
// thread that made the command ends; the guard's does only with the guard.
func childAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

func dup2(from, to int) error { return syscall.Dup3(from, to, 0) }

func setReceiveTimeout(fd int, ns int64) {
	tv := syscall.NsecToTimeval(ns)
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv)
}

// now is a monotonic clock in nanoseconds.
func now() int64 {
	const clockMonotonic = 1
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

func sleep(ns int64) {
	ts := syscall.NsecToTimespec(ns)
	_ = syscall.Nanosleep(&ts, nil)
}
