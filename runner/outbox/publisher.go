// Package outbox publishes what applications have put into their outbox: it
// leases rows, publishes them with no transaction open, and marks them. This is
// at-least-once: a row whose publisher died goes out again, under the same id.
package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// Store is what publishing needs of a store.
type Store interface {
	runner.OutboxLeaser
	runner.OutboxMarker
}

// Publisher tries once to publish a row. Of its result, Failed with Attempts
// but no Status says that the receiver was not reached: that is no fault of the
// row. When ctx ends it finishes what it has begun, within a grace of its own.
type Publisher interface {
	Publish(ctx context.Context, row runner.OutboxRow) runner.DeliveryResult
}

const (
	// LeaseFor is how long rows are a publisher's if it does not renew: those of
	// one that was killed go out again after that.
	LeaseFor = 30 * time.Second

	// recordTimeout bounds one mark, also after an interrupt.
	recordTimeout = 15 * time.Second

	// rewind is how often the beginning of the outbox is looked at while there
	// is more behind it: a row committed late with a lower id waits no longer.
	// In between, the dead versions of rows just sent are not read again, which
	// PostgreSQL keeps for as long as some transaction is open anywhere.
	rewind = time.Second
)

// Options say what is published and how often it is tried.
type Options struct {
	Topic       string // empty: all
	Batch       int    // most rows in hand
	Concurrency int    // most rows published and not yet marked
	Limit       int    // end after so many rows; 0: none
	// For is how long to go on looking for rows; 0 ends once there are none.
	For        time.Duration
	SkipFailed bool

	Retries    int           // after the first try; then the row is a dead letter
	Backoff    time.Duration // before the first retry, doubled each time
	BackoffMax time.Duration // longest wait of that curve
	// MaxWait is the longest silence of the receiver that is waited for by a run
	// without For.
	MaxWait   time.Duration
	NoPayload bool // keep payloads out of dead letters
	// Request is failed_jobs.request of a row's dead letter.
	Request []byte
}

// Reason is why a run ended.
type Reason string

const (
	Empty       Reason = "empty"       // there was nothing left that could go out
	TimeOver    Reason = "time_over"   // For
	BatchLimit  Reason = "batch_limit" // Limit
	Interrupted Reason = "interrupted" // the context ended
	Unreachable Reason = "unreachable" // the receiver was not reached, or wants no requests
	StoreFailed Reason = "store"       // see the error
)

// Result is what a run came to.
type Result struct {
	Sent   int // published
	Failed int // made dead letters
	Tries  int // that failed and will be repeated
	// Lost counts rows whose lease had ended, so that what became of them was
	// not recorded: they go out again.
	Lost  int
	Ended Reason
	// Away says that the receiver was not reached when the run ended.
	Away bool
	// LastError is why the last try that failed did.
	LastError string
}

// Drain publishes the outbox of one store.
type Drain struct {
	Options
	Store     Store
	Publisher Publisher
	Token     runner.Token
	Log       *slog.Logger
	Random    func() float64 // jitter, from [0, 1)
}

// Run publishes until there is a reason to end, and then finishes what is in
// flight and gives back what was not begun. The error is the store's.
func (d *Drain) Run(ctx context.Context) (Result, error) {
	s := newState(ctx, d)
	defer s.cancel()
	for {
		s.settle()
		s.notice(time.Now())
		s.lease(time.Now())
		s.start(time.Now())
		if s.over(time.Now()) {
			return s.result, s.err
		}
		s.wait()
	}
}
