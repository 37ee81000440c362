package process

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reap waits, for as long as this process lives, for children that nobody else
// waits for. As PID 1 it gets the orphans of shells that people run in its
// container; as a subreaper, those of daemons that a job has left.
var reap = sync.OnceFunc(func() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			reapEnded()
		}
	}()
})

// reapEnded waits for every child that has ended. It reports whether there
// are others.
func reapEnded() (left bool) {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return false
		case pid == 0:
			return true
		}
	}
}
