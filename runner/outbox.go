package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrNoOutboxRow says that there is no failed outbox row of that id: it was
// sent, was put back, or is gone.
var ErrNoOutboxRow = errors.New("there is no such failed row in the outbox")

// ErrOutboxLeased says that a publisher has the row, or one of its key, now.
var ErrOutboxLeased = errors.New("another publisher has it, or a row of its key, now")

// OutboxEntry is a message to be put into the outbox.
type OutboxEntry struct {
	Topic   string
	Key     string // empty: none
	Payload []byte // JSON
	// Token makes a repeated addition find its row, until a publisher has
	// taken it.
	Token Token
}

// Check refuses, with ErrInvalid, what no store may keep.
func (e OutboxEntry) Check() error {
	if err := checkName(e.Topic); err != nil {
		return fmt.Errorf("topic %s: %w", quoteShort(e.Topic), err)
	}
	if e.Key != "" {
		if err := checkName(e.Key); err != nil {
			return fmt.Errorf("key %s: %w", quoteShort(e.Key), err)
		}
	}
	switch {
	case e.Token == "":
		return fmt.Errorf("%w: an addition has no token", ErrInvalid)
	case len(e.Payload) > MaxBodyBytes:
		return fmt.Errorf("%w: the payload has %d bytes, the limit is %d", ErrInvalid, len(e.Payload), MaxBodyBytes)
	case !json.Valid(e.Payload):
		return fmt.Errorf("%w: the payload is not JSON", ErrInvalid)
	case hasNUL(e.Payload):
		return fmt.Errorf("%w: the payload has \\u0000, which jsonb does not take", ErrInvalid)
	}
	return nil
}

// hasNUL reports whether JSON has the escape of NUL. A backslash that is itself
// escaped begins none.
func hasNUL(payload []byte) bool {
	for i := 0; i+5 < len(payload); i++ {
		if payload[i] != '\\' {
			continue
		}
		if string(payload[i:i+6]) == `\u0000` {
			return true
		}
		i++
	}
	return false
}

// OutboxRow is a message as a publisher gets it.
type OutboxRow struct {
	ID      int64
	Topic   string
	Key     string
	Keyed   bool   // false: key is null, and Key means nothing
	Payload []byte // as the store has it: jsonb's own text in PostgreSQL
	// Attempts counts the tries that failed before.
	Attempts int
	// Doubtful says that one of them may have been processed, or that a
	// publisher ended without saying.
	Doubtful bool
}

// EventID is the id under which the row is published, each time: outbox-<id>.
func (r OutboxRow) EventID() EventID { return OutboxEventID(r.ID) }

const outboxPrefix = "outbox-"

// OutboxEventID is the event id of the row with that id.
func OutboxEventID(id int64) EventID { return EventID(outboxPrefix + strconv.FormatInt(id, 10)) }

// OutboxID is the row's id in its event id; false for other event ids.
func OutboxID(id EventID) (int64, bool) {
	digits, ok := strings.CutPrefix(string(id), outboxPrefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && OutboxEventID(n) == id
}

// OutboxCursor is a place in the outbox from which a lease looks on. The zero
// cursor is the beginning: only what is looked for from there can be said not
// to be there, since rows with lower ids are committed late.
type OutboxCursor struct {
	ID  int64  // rows without a key: behind this one
	Key string // rows with keys: behind this key
	// Unkeyed leaves rows with keys out, since from the beginning there were
	// none; only with ID.
	Unkeyed bool
}

// AfterID is behind which id to look: behind none for the zero cursor.
func (c OutboxCursor) AfterID() int64 {
	if c.ID == 0 {
		return math.MinInt64
	}
	return c.ID
}

// OutboxLease asks for rows to publish.
type OutboxLease struct {
	Token Token // the publisher's
	Limit int   // most rows
	Topic string
	// For is how long the rows are the publisher's if it does not renew.
	For time.Duration
	// SkipFailed takes rows of a key behind one that has failed.
	SkipFailed bool
	From       OutboxCursor
	// Idle says that there was nothing a moment ago: a look that writes nothing
	// comes first.
	Idle bool
}

// OutboxRunLength is how many rows of one key a lease takes at most, so that one
// busy key does not fill it alone, and is not looked for at each row.
const OutboxRunLength = 16

// OutboxLeaser hands rows to publishers. Errors: ErrUnavailable, ErrRefused,
// ErrUndecided.
type OutboxLeaser interface {
	// Lease gives unsent rows to a publisher, in the order of their ids, in one
	// short transaction. A row is given to one publisher at a time. Of a key
	// come its first unsent rows, none of them while another publisher has one
	// of that key; none behind a row that waits for its next try or that has
	// failed (until its dead letter is resolved). Next is where to look on; the
	// zero cursor if everything behind From was looked at.
	Lease(ctx context.Context, l OutboxLease) (rows []OutboxRow, next OutboxCursor, err error)
	// RenewLeases prolongs the leases of those ids that are still the
	// publisher's, and returns them.
	RenewLeases(ctx context.Context, token Token, ids []int64, d time.Duration) ([]int64, error)
}

// OutboxVerdict is what becomes of a leased row.
type OutboxVerdict int

const (
	// OutboxSent: it was delivered.
	OutboxSent OutboxVerdict = iota
	// OutboxAgain: a try failed; the next one is due after a while.
	OutboxAgain
	// OutboxDead: tries are over; it becomes a dead letter.
	OutboxDead
	// OutboxBack: it was not tried; anyone may have it.
	OutboxBack
)

// OutboxMark is what a publisher says of a row.
type OutboxMark struct {
	ID      int64
	Verdict OutboxVerdict
	// After is when the next try is due, of OutboxAgain.
	After time.Duration
	// Free keeps the try from counting.
	Free      bool
	LastError string // of OutboxAgain and OutboxDead
	Doubtful  bool   // the try may have been processed
	// DeadLetter is saved with OutboxDead in the same transaction.
	DeadLetter *DeadLetter
}

// Check refuses, with ErrInvalid, a row that is given up without a dead letter
// that can be kept.
func (m OutboxMark) Check() error {
	if m.Verdict != OutboxDead {
		return nil
	}
	if m.DeadLetter == nil {
		return fmt.Errorf("marking row %d: %w: there is no dead letter", m.ID, ErrInvalid)
	}
	if err := m.DeadLetter.Check(); err != nil {
		return fmt.Errorf("saving the dead letter of row %d: %w", m.ID, err)
	}
	return nil
}

// Counted is by how much the mark raises the row's attempts.
func (m OutboxMark) Counted() int {
	if m.Free || m.Verdict == OutboxBack {
		return 0
	}
	return 1
}

// OutboxMarker records what became of leased rows. Errors: ErrUnavailable,
// ErrRefused, ErrUndecided.
type OutboxMarker interface {
	// Mark tells for each mark whether the row was still the publisher's; the
	// others stay as they are. All in one transaction. Sent rows have their dead
	// letters resolved.
	Mark(ctx context.Context, token Token, marks []OutboxMark) (owned []bool, err error)
}

// OutboxAdder puts messages into the outbox.
type OutboxAdder interface {
	// AddToOutbox returns the new row's id. Errors: ErrInvalid, ErrUnavailable,
	// ErrRefused and ErrUndecided; in a run ErrLockLost. After
	// ErrUnavailable and ErrUndecided it may have been added.
	AddToOutbox(ctx context.Context, e OutboxEntry) (int64, error)
}

// OutboxReviver deals with rows that have failed. Errors: ErrUnavailable,
// ErrRefused,
// ErrUndecided and ErrNoOutboxRow.
type OutboxReviver interface {
	// LeaseFailed gives one failed row to a publisher, as Lease does;
	// ErrOutboxLeased if another one has it or a row of its key.
	LeaseFailed(ctx context.Context, id int64, token Token, d time.Duration) (OutboxRow, error)
	// PutBack makes a failed row as if new and resolves its dead letters.
	PutBack(ctx context.Context, id int64) error
}

// OutboxBacklog is what waits in the outbox.
type OutboxBacklog struct {
	Pending int64     // neither sent nor failed
	Oldest  time.Time // created_at of the first of them; zero if none
	Age     time.Duration
	Failed  int64 // failed and not sent since
}

// OutboxReader shows the outbox. Errors: ErrUnavailable, ErrRefused.
type OutboxReader interface {
	// Backlog counts the rows of a topic; of all, if it is empty. Age is by the
	// store's clock.
	Backlog(ctx context.Context, topic string) (OutboxBacklog, error)
}

// Outbox is all that a store can do with its outbox.
type Outbox interface {
	OutboxLeaser
	OutboxMarker
	OutboxAdder
	OutboxReviver
	OutboxReader
}
