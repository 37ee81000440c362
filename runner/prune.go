package runner

import (
	"context"
	"time"
)

// PruneBatch is how many rows are deleted in one transaction: few enough that
// no claim waits long behind one.
const PruneBatch = 1000

// Pruned counts what was deleted.
type Pruned struct {
	Claims, DeadLetters, Outbox, Runs int
}

// Pruner forgets what is over. Errors: ErrUnavailable, ErrRefused, ErrInvalid
// for an age that is not positive.
type Pruner interface {
	// Prune deletes what has been over for longer than age, by the store's
	// clock: bare and finished claims, resolved dead letters, sent rows of the
	// outbox, finished runs. It keeps what is unfinished or in doubt (of an
	// event in doubt also the dead letters), each lock's latest run and latest
	// success, and runs of a key without a tick that succeeded. What was
	// deleted before an error stays deleted, and is counted.
	Prune(ctx context.Context, age time.Duration) (Pruned, error)
}
