package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Kind says what a dead letter was: the values of failed_jobs.kind.
type Kind string

const (
	KindRun    Kind = "run"
	KindClaim  Kind = "claim"
	KindSend   Kind = "send"
	KindOutbox Kind = "outbox"
)

// DeadLetter is a row of failed_jobs: something that a person should see.
type DeadLetter struct {
	ID          int64
	Kind        Kind
	Name        string // lock, topic or URL host
	EventID     EventID
	PayloadHash string
	Payload     []byte // nil: not kept
	// Request is what is needed to send it again, as JSON; nil: none. It holds
	// no secrets.
	Request   []byte
	LastError string // never empty
	Attempts  int
	Certainty Outcome // Failed or InDoubt
	FailedAt  time.Time
	RetryAt   time.Time // zero: the receiver said nothing

	ResolvedAt time.Time
	Resolution string
}

// beforeTail stands between the reason and the end of a command's stderr.
const beforeTail = "; stderr ends:\n"

// WithTail is the LastError of a command: the reason why it failed and the end
// of its stderr.
func WithTail(reason string, tail []byte) string {
	text := strings.TrimSpace(KeptText(string(tail)))
	if text == "" {
		return reason
	}
	return reason + beforeTail + text
}

// Reason is LastError without the end of a command's stderr, which may hold
// anything.
func (d DeadLetter) Reason() string {
	reason, _, _ := strings.Cut(d.LastError, beforeTail)
	return reason
}

// Check refuses, with ErrInvalid, what no store may keep.
func (d DeadLetter) Check() error {
	switch d.Kind {
	case KindRun, KindClaim, KindSend, KindOutbox:
	default:
		return fmt.Errorf("%w: a dead letter of kind %q", ErrInvalid, d.Kind)
	}
	switch {
	case d.Certainty != Failed && d.Certainty != InDoubt:
		return fmt.Errorf("%w: a dead letter of certainty %q", ErrInvalid, d.Certainty)
	case d.LastError == "":
		return fmt.Errorf("%w: a dead letter without an error tells nobody anything", ErrInvalid)
	case d.Request != nil && !json.Valid(d.Request):
		return fmt.Errorf("%w: a dead letter whose request is not JSON", ErrInvalid)
	}
	return nil
}

// HashBytes is the lower-case hex SHA-256 of the exact bytes of a payload.
func HashBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// HashCommand is the payload hash of a command: that of its arguments joined
// by NUL, a byte which no argument can contain.
func HashCommand(argv []string) string {
	return HashBytes([]byte(strings.Join(argv, "\x00")))
}

// DeadLetterFilter selects dead letters; zero fields select all that are
// unresolved.
type DeadLetterFilter struct {
	Kind Kind
	Name string
	// Since keeps those that failed at most this long before the store's now.
	Since time.Duration
	// All keeps resolved ones too.
	All bool
	// Due keeps only those whose retry_at has come.
	Due bool
}

// DeadLetters shows and resolves dead letters. Errors: ErrUnavailable,
// ErrRefused.
type DeadLetters interface {
	// EachDeadLetter calls f for each, oldest first, without its payload, and
	// stops at f's first error, which it returns.
	EachDeadLetter(ctx context.Context, filter DeadLetterFilter, f func(DeadLetter) error) error
	// DeadLetter returns one with its payload; ErrNoDeadLetter if there is none.
	DeadLetter(ctx context.Context, id int64) (DeadLetter, error)
	// Resolve marks it resolved; false if it was already, or is not there.
	Resolve(ctx context.Context, id int64, resolution string) (bool, error)
}
