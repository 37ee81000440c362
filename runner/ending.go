package runner

import (
	"log/slog"
	"os"
	"syscall"
	"time"
)

// ending is how a job that runs is brought to its end: signals are passed on,
// and SIGTERM starts the clock to SIGKILL.
type ending struct {
	child     Child
	killAfter time.Duration
	log       *slog.Logger
	// kill fires when the job has had its time after SIGTERM; nil before one.
	kill <-chan time.Time
}

// forward passes sig on and reports whether it was the order to stop.
func (e *ending) forward(sig os.Signal) (stops bool) {
	if sig == syscall.SIGTERM {
		e.stop()
		return true
	}
	if err := e.child.Signal(sig); err != nil {
		e.log.Warn("passing a signal to the job", "signal", sig, "error", err)
	}
	return false
}

// stop asks the job to end and bounds how long it may take.
func (e *ending) stop() {
	if err := e.child.Signal(syscall.SIGTERM); err != nil {
		e.log.Warn("sending the job SIGTERM", "error", err)
	}
	if e.kill == nil {
		e.kill = time.After(e.killAfter)
	}
}

// killJob kills all of the job.
func (e *ending) killJob() {
	e.kill = nil
	if err := e.child.Kill(); err != nil {
		e.log.Error("killing the job", "error", err)
	}
}
