//go:build unix && !linux

package guard

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	sendFlags = 0
	recvFlags = 0
	waitFlags = syscall.WUNTRACED
)

// Subreap does nothing: only Linux can.
func Subreap() {}

// becomeGuard catches signals without a listener rather than ignore them: the
// command would inherit what is ignored.
func becomeGuard() {
	unheard := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !signal.Ignored(sig) {
			signal.Notify(unheard, sig)
		}
	}
}

// DieOf ends this process by sig. It returns if that does not work.
func DieOf(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(syscall.Getpid(), sig)
	sleep(50e6)
}

func childAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

func dup2(from, to int) error { return syscall.Dup2(from, to) }

func setReceiveTimeout(fd int, ns int64) {
	tv := syscall.NsecToTimeval(ns)
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv)
}

func now() int64 { return time.Now().UnixNano() }

func sleep(ns int64) { time.Sleep(time.Duration(ns)) }
