package runner

import (
	"context"
	"fmt"
	"time"
)

// MaxBodyBytes is the greatest length of a message's body, 10 MiB. A body is
// held in memory so that every try sends the same bytes.
const MaxBodyBytes = 10 << 20

// Message is something to be delivered once over HTTP.
type Message struct {
	ID     EventID
	URL    string
	Method string // empty: POST
	// Header holds what the caller adds, by name. Names are case-insensitive.
	Header map[string][]string
	Body   []byte
	// Idempotent says that the receiver honours Idempotency-Key, so that a try
	// which may have been processed can be repeated.
	Idempotent bool
}

// DeliveryResult is what became of a message.
type DeliveryResult struct {
	Outcome Outcome // Delivered, Failed or InDoubt
	// Status is the HTTP status of the last try, 0 if it had no answer.
	Status int
	// Attempts counts the tries that were begun, refused ones included.
	Attempts int
	// LastError says why it was not delivered: never empty then, one line, and
	// without the URL's user, path or query and without headers.
	LastError string
	// RetryAt is when the receiver said to come back; zero if it did not.
	RetryAt time.Time
	// Interrupted says that the context ended before the result was final.
	// With outcome Failed nothing was delivered, and the claim can be given
	// back.
	Interrupted bool
}

// Deliverer delivers messages. It never fails otherwise than by its result,
// which is final: tries and back-off are over.
type Deliverer interface {
	Deliver(ctx context.Context, m Message) DeliveryResult
}

// Answer is what a host made of one request, as far as its pace goes.
type Answer int

const (
	// AnswerNone: none came, or the request was never sent.
	AnswerNone Answer = iota
	// AnswerDelivered: the host took it and said so (2xx).
	AnswerDelivered
	// AnswerOther: the host took it, whatever it thought of it.
	AnswerOther
	// AnswerRefused: not now (429 and its like).
	AnswerRefused
)

// Feedback tells the gate how a request went.
type Feedback struct {
	Answer Answer
	// RetryAfter is how long the host wants silence; negative if it did not
	// say.
	RetryAfter time.Duration
}

// SendGate bounds the requests in flight and keeps each host's pace, for all who
// share it.
type SendGate interface {
	// Acquire waits until a request to host may be sent. Host is scheme, name
	// and port. It fails with the context's cause, and at once with a
	// *HeldError if the host wants silence for longer than patience.
	Acquire(ctx context.Context, host string, patience time.Duration) (SendPermit, error)
}

// SendPermit is the right to send one request. Done is called exactly once.
type SendPermit interface {
	// Delivered is how many requests the host had taken and confirmed, from
	// all who share the gate, when the permit was given.
	Delivered() uint64
	// Done gives the permit back, and returns that number as it is now.
	Done(f Feedback) (delivered uint64)
}

// HeldError says that a host wants no request before Until.
type HeldError struct {
	Host  string
	Until time.Time
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s wants no request before %s", e.Host, e.Until.UTC().Format(time.RFC3339))
}
