package runner

import (
	"context"
	"time"
)

// Outcomes that are never stored: those of a run without a recorded end.
const (
	// RunRunning: it is the latest run of its lock, and the lock is held.
	RunRunning RunOutcome = "running"
	// RunUnknown: its lock is not held by it any more, and nobody recorded how
	// it ended. oncectl or its host died, or the store was away at the end.
	RunUnknown RunOutcome = "unknown"
)

// PastRun is a row of runs, as people see it.
type PastRun struct {
	ID          int64
	Lock        LockID
	Key         string
	ScheduledAt time.Time
	Host        string
	PID         int
	StartedAt   time.Time
	FinishedAt  time.Time // zero: no end is recorded
	Outcome     RunOutcome
	ExitCode    int // of a finished run
	// Took is how long it took, or has been going on; zero for RunUnknown.
	Took time.Duration
}

// Finished reports whether the run's end is recorded.
func (r PastRun) Finished() bool { return !r.FinishedAt.IsZero() }

// RunFilter selects runs; zero fields select all.
type RunFilter struct {
	Lock    string // its name
	Outcome RunOutcome
	// Since keeps those that started at most this long before the store's now.
	Since time.Duration
	Limit int // 0: none
}

// LockState is what is known of one lock.
type LockState struct {
	Lock LockID
	Held bool
	// Holder says who holds it: host and pid of its run, or what the store
	// shows of somebody who recorded none, as other code does or a run that is
	// about to begin. Empty if it is not held, or if nobody may know.
	Holder string
	Since  time.Time // since when the holder's run; zero if it has none
	Last   PastRun   // the latest run
	// LastSuccess is when the latest run that succeeded ended; zero for none.
	LastSuccess time.Time
}

// LetterCount counts unresolved dead letters.
type LetterCount struct {
	Kind      Kind
	Certainty Outcome
	Count     int
	Oldest    time.Time
}

// Status is what a store shows of now. Nothing is written to find it.
type Status struct {
	At      time.Time // the store's clock
	Locks   []LockState
	Letters []LetterCount
	// InDoubt counts the events that may have had their side effect, expired
	// ones among them; InDoubtOpen those which no person has dealt with yet, by
	// resolving their dead letter.
	InDoubt, InDoubtOpen int
	// Expired counts the claims whose time passed without an outcome, and
	// ExpiredSends those of them that are sends, which become dead letters at
	// the next send, run or failed.
	Expired, ExpiredSends int
	// Unfinished counts the claims that wait for their outcome.
	Unfinished int
	Outbox     Backlog
}

// LookTwice is look's status, or its next one where the first had a run that is
// RunUnknown. Stores cannot look at a run's row and at its lock in one instant:
// one that ends in between has no end in its row, and does not hold its lock any
// more. Its end is recorded before its lock is released, so that the second look
// finds it.
func LookTwice(look func() (Status, error)) (Status, error) {
	st, err := look()
	if err != nil {
		return st, err
	}
	for _, l := range st.Locks {
		if l.Last.Outcome == RunUnknown {
			return look()
		}
	}
	return st, nil
}

// Backlog is what waits in the outbox: neither sent nor given up.
type Backlog struct {
	Count  int
	Oldest time.Time // when the oldest was added; zero for none
}

// History shows what happened. Errors: ErrUnavailable, ErrRefused.
type History interface {
	// Status looks at everything at once. Locks are in the order of their names.
	Status(ctx context.Context) (Status, error)
	// EachRun calls f for each run, latest first, and stops at f's first error,
	// which it returns.
	EachRun(ctx context.Context, filter RunFilter, f func(PastRun) error) error
}
