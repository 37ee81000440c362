package cmd

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/oncectl/oncectl/runner"
)

// Status is an exit status.
type Status int

// The exit statuses that users' scripts rely on (README.md, "Exit status").
const (
	StatusOK    Status = 0
	StatusNo    Status = 1 // the answer is no
	StatusError Status = 2 // oncectl could not do it

	// The two commands that run a command end with its status, or with these.
	StatusLost          Status = 120
	StatusTimeout       Status = 124
	StatusRunError      Status = 125
	StatusNotExecutable Status = 126
	StatusNotFound      Status = 127
)

// errNo is the answer no. It is not an error to talk about: what there is to
// say has been said.
var errNo = errors.New("the answer is no")

// statusError carries an exit status that is already decided.
type statusError Status

func (s statusError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// hinted is an error with a second line that says what to do.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// usageError is a fault in the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// exitStatus maps what a command returned to its exit status. runsCommand
// tells the two commands that run a command from the others.
func exitStatus(err error, runsCommand bool) Status {
	var decided statusError
	switch {
	case err == nil:
		return StatusOK
	case errors.As(err, &decided):
		return Status(decided)
	case errors.Is(err, errNo):
		return StatusNo
	case !runsCommand:
		return StatusError
	case errors.Is(err, runner.ErrNotFound):
		return StatusNotFound
	case errors.Is(err, runner.ErrNotExecutable):
		return StatusNotExecutable
	}
	return StatusRunError
}

// quiet reports whether err has nothing to print.
func quiet(err error) bool {
	var decided statusError
	return errors.Is(err, errNo) || errors.As(err, &decided)
}

// runStatus is the exit status of a run. busy is --busy-exit.
func runStatus(res runner.Result, busy int) Status {
	switch {
	case res.Interrupted != nil:
		return signalStatus(res.Interrupted)
	case errors.Is(res.Skipped, runner.ErrBusy):
		return Status(busy)
	case res.Skipped != nil:
		return StatusOK
	case res.Outcome == runner.RunLost:
		return StatusLost
	case res.Outcome == runner.RunTimedOut:
		return StatusTimeout
	}
	return Status(res.Exit.Status())
}

// signalStatus is the status of a program that sig ended.
func signalStatus(sig os.Signal) Status {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return StatusRunError
	}
	return Status(128 + int(n))
}
