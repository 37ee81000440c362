package cmd

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func TestExitStatus_Ladder(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("doing it: %w", err) }
	for _, c := range []struct {
		err         error
		plain, runs Status
	}{
		{nil, 0, 0},
		{errNo, 1, 1},
		{wrapped(errNo), 1, 1},
		{statusError(7), 7, 7},
		{wrapped(statusError(143)), 143, 143},
		{usagef("what?"), 2, 125},
		{hinted{errors.New("no"), "do"}, 2, 125},
		{runner.ErrUnavailable, 2, 125},
		{runner.ErrUndecided, 2, 125},
		{runner.ErrRefused, 2, 125},
		{runner.ErrInvalid, 2, 125},
		{runner.ErrLockLost, 2, 125},
		{wrapped(runner.ErrNotFound), 2, 127},
		{wrapped(runner.ErrNotExecutable), 2, 126},
	} {
		if got := exitStatus(c.err, false); got != c.plain {
			t.Errorf("%v ends with %d, not %d", c.err, got, c.plain)
		}
		if got := exitStatus(c.err, true); got != c.runs {
			t.Errorf("%v ends with %d where a command is run, not %d", c.err, got, c.runs)
		}
	}
}

func TestRunStatus_Ladder(t *testing.T) {
	for name, c := range map[string]struct {
		res  runner.Result
		want Status
	}{
		"busy":        {runner.Result{Skipped: runner.ErrBusy}, 75},
		"done":        {runner.Result{Skipped: runner.ErrDone}, 0},
		"interrupted": {runner.Result{Interrupted: syscall.SIGTERM}, 143},
		"cancelled":   {runner.Result{Interrupted: os.Interrupt}, 130},
		"succeeded":   {runner.Result{Outcome: runner.RunSucceeded}, 0},
		"failed":      {runner.Result{Outcome: runner.RunFailed, Exit: runner.Exit{Code: 3}}, 3},
		"signalled":   {runner.Result{Outcome: runner.RunFailed, Exit: runner.Exit{Signal: syscall.SIGKILL}}, 137},
		"stopped":     {runner.Result{Outcome: runner.RunStopped, Exit: runner.Exit{}}, 0},
		"timed out":   {runner.Result{Outcome: runner.RunTimedOut, Exit: runner.Exit{Signal: syscall.SIGTERM}}, 124},
		"lost":        {runner.Result{Outcome: runner.RunLost, Exit: runner.Exit{Signal: syscall.SIGKILL}}, 120},
	} {
		if got := runStatus(c.res, 75); got != c.want {
			t.Errorf("%s ends with %d, not %d", name, got, c.want)
		}
	}
}
