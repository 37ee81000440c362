// Package guard is the small process that stands between oncectl and the job:
// it starts the command, finds every descendant of it, and outlives a killed
// oncectl by exactly as long as the job does, holding the lock's descriptor.
//
// The guard is the same binary, so it would pay for the initialisation of
// every package that oncectl links: 10.6 ms here, where an empty Go program
// takes 4.1 ms. The linker initialises packages one by one, each time the
// first by import path among those whose imports are initialised. This package
// imports nothing but syscall and sync, so it comes among the very first, long
// before net/http, cobra, pgx or SQLite; its init runs the guard and ends the
// process (6.1 ms). That is why nothing here may import fmt, os, time or
// x/sys: `GODEBUG=inittrace=1` shows what it costs.
package guard

import (
	"runtime"
	"syscall"
)

// Env is the variable that makes this binary a guard: the number of the
// inherited socket, perhaps followed by a comma and LateQuit. The guard never
// passes its own environment on.
const Env = "ONCECTL_GUARD"

// LateQuit asks for a command that ignores SIGQUIT. Only os/signal can make
// Go's fork leave that signal ignored, and it is too dear for every guard; so
// such a guard is started from main, by process.GuardMain.
const LateQuit = "quit"

func init() {
	fd, option, ok := Marked()
	if ok && option == "" {
		Run(fd)
	}
}

// Marked reports whether this process was started as a guard: the number of
// its socket and the option after it. A variable that somebody set by accident
// does not count, as there is no socket.
func Marked() (fd int, option string, ok bool) {
	v, found := syscall.Getenv(Env)
	if !found {
		return 0, "", false
	}
	i := 0
	for ; i < len(v) && v[i] >= '0' && v[i] <= '9' && fd < 1<<20; i++ {
		fd = fd*10 + int(v[i]-'0')
	}
	if i < len(v) && v[i] == ',' {
		option = v[i+1:]
	} else if i == 0 || i < len(v) {
		return 0, "", false
	}
	if _, err := syscall.Getpeername(fd); err != nil {
		return 0, "", false
	}
	return fd, option, true
}

// Run is the whole life of a guard that talks on socket fd. It never returns.
// The thread that starts the command stays until the end, because the
// command's parent-death signal is tied to it.
func Run(fd int) {
	runtime.LockOSThread()
	syscall.CloseOnExec(fd)
	becomeGuard()
	s := &server{
		conn: NewConn(fd),
		lock: -1,
		tree: NewTree(syscall.Getpid()),
		gone: make(chan struct{}),
	}
	s.serve()
	syscall.Exit(0)
}
