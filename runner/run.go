package runner

import (
	"context"
	"time"
)

// Run is one execution of a job under its lock.
type Run struct {
	ID    int64
	Lock  LockID
	Key   string // tick or --once key; empty without
	Token Token  // the fencing token
	Host  Host
	PID   int
	// ScheduledAt is the tick's time; zero without one.
	ScheduledAt time.Time
	StartedAt   time.Time
}

// RunOutcome is how a run ended, as stored in runs.outcome.
type RunOutcome string

const (
	RunSucceeded RunOutcome = "succeeded"
	RunFailed    RunOutcome = "failed"
	RunTimedOut  RunOutcome = "timed_out"
	RunStopped   RunOutcome = "stopped" // ended by a signal to oncectl
	RunLost      RunOutcome = "lost"    // ended because its lock was lost

	// RunSkipped is stored nowhere: Finish takes such a run out of the record.
	RunSkipped RunOutcome = "skipped"
)

// BeginRequest asks for a run to be recorded.
type BeginRequest struct {
	Token       Token // chosen by the caller, so that a lost answer is recognised
	Key         string
	ScheduledAt time.Time
	Host        Host
	PID         int
}

// Begun is the answer to BeginRequest.
type Begun struct {
	Run Run
	// Predecessor is the latest earlier run of the lock if it was never
	// finished, else nil.
	Predecessor *Run
	// ServerChanged says that the server was restarted or promoted since the
	// predecessor began.
	ServerChanged bool
	// Wait is what is left of the wait that an earlier run owed and did not
	// see the end of.
	Wait time.Duration
	// NoHandover says that the lock cannot have been free while the
	// predecessor's job lived, so that nothing needs to be waited for.
	NoHandover bool
	// ExpiredSends says that there are sends whose sender died. It is part of
	// the record so that a run looks for them without a round trip of its own,
	// and calls the lock's Sweep (see Sweeper) only when there are some.
	ExpiredSends bool
}

// RunEnd is what is recorded when a run is over.
type RunEnd struct {
	Outcome  RunOutcome
	ExitCode int
	// Started says that the job was started, so that whatever had to be waited
	// for before is over.
	Started bool
	// DeadLetter is saved in the same transaction; nil after a success.
	DeadLetter *DeadLetter
}

// Recorder keeps the record of the run that a lock guards.
type Recorder interface {
	// Begin inserts the run and makes it the owner of the lock's fence, in one
	// transaction. ErrDone if another run of the same lock and key has
	// succeeded; then nothing was written. ErrLockLost if the lock was lost
	// before. Repeated with the same token it is the same run.
	Begin(ctx context.Context, req BeginRequest) (Begun, error)
	// Resume tells a lock that was taken again that run goes on under it.
	// ErrFenced if another run has owned the fence since.
	Resume(ctx context.Context, run Run) error
	// Finish records the end, or forgets a run that was skipped. It also works
	// after the lock was lost. A run whose end is already recorded is left as
	// it is.
	Finish(ctx context.Context, run Run, end RunEnd) error
}

// Host identifies a machine, and within it the processes that see each other.
type Host struct {
	Name string
	// ID is equal for two processes only if they share a boot and a process
	// id namespace, so that a pid means the same to both. Empty if unknown.
	ID string
}
