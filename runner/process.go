package runner

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Command is the job's command as it is to be started.
type Command struct {
	Argv []string
	Env  []string
	// LockFile is the duplicate of the lock's descriptor for the guard to hold
	// until the job is dead; nil for none. The starter closes it.
	LockFile *os.File
	// Lease tells until when the lock is surely held, zero for always; nil is
	// the same. The guard starts and continues nothing after that time, and
	// pauses what runs: it may learn of it late, but it never acts on an old
	// order.
	Lease func() time.Time
	// QuietOK keeps the output back and shows it only when the job fails.
	QuietOK bool
	// KeepOutput is how many bytes of the end of all output to keep for
	// Output.Last. If it is not 0, stdout is copied through like stderr.
	KeepOutput int
}

// Exit is how a command ended.
type Exit struct {
	Code   int            // 0 to 255, where it ended by itself
	Signal syscall.Signal // 0, or the signal that killed it
}

// Status is the exit status that a shell would report: 128+n for signal n.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// OK reports whether the command succeeded.
func (e Exit) OK() bool { return e == Exit{} }

func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by signal %d (%v)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Starter starts commands. Errors: ErrNotFound, ErrNotExecutable; ErrLockLost if
// the lease ran out before the command was started.
type Starter interface {
	Start(ctx context.Context, c Command) (Child, error)
}

// Process is a command that was started.
type Process interface {
	// Done is closed when the command has ended and what it had written by
	// then has been passed on.
	Done() <-chan struct{}
	// Exit is how the command ended; valid once Done is closed.
	Exit() Exit
	// Signal passes sig to the job as a terminal or a supervisor would: TERM,
	// INT and QUIT to the command's process group, others to the command.
	Signal(sig os.Signal) error
}

// Pausable acts on a whole job: the command and every descendant of it. Each
// method returns when its effect is complete.
type Pausable interface {
	Pause() error
	// Continue returns ErrLockLost, with the job still paused, if the lease has
	// run out.
	Continue() error
	// Kill ends what is left of the job with SIGKILL, paused or not.
	Kill() error
}

// Guarded is a job whose guard outlives a killed oncectl.
type Guarded interface {
	// Halted receives a value each time the guard has paused the job on its
	// own, because this process had been silent for too long.
	Halted() <-chan struct{}
	// Hold gives the guard another lock descriptor in place of the one it has.
	// Hold closes f.
	Hold(f *os.File) error
}

// Output is what a job wrote.
type Output interface {
	// Tail is the last part of what the job wrote to stderr (at most TailBytes);
	// valid once Done is closed.
	Tail() []byte
	// Last is the last part of what the job wrote to stdout and stderr, at most
	// Command.KeepOutput bytes; valid once Done is closed. What went to a
	// terminal is not in it.
	Last() []byte
	// Close ends the guard, and shows (failed) or drops output that was kept
	// back. What the command left running in the background after it ended by
	// itself stays. Call it once, after Done, before the lock is released.
	Close(failed bool) error
}

// TailBytes is how much of the end of a job's stderr a dead letter keeps.
const TailBytes = 4 << 10

// Child is a job that is running, with its guard.
type Child interface {
	Process
	Pausable
	Guarded
	Output
}
