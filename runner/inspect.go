package runner

import (
	"context"
	"time"
)

// Severity says what a finding asks for.
type Severity string

const (
	Fine    Severity = "ok"
	Note    Severity = "note"    // good to know; nobody has to do anything
	Problem Severity = "problem" // needs a person
)

// Finding is one thing that was looked at.
type Finding struct {
	Check    string // what was looked at: a stable name
	Severity Severity
	Found    string
	Do       string // what to do; never empty for a Problem
}

// Inspector looks at a store without using or changing it.
type Inspector interface {
	// Inspect tells what it found, also where the store would be refused. now
	// is this machine's clock. ErrUnavailable if the store cannot be reached;
	// the findings made until then come with it.
	Inspect(ctx context.Context, now func() time.Time) ([]Finding, error)
}

// MostSkew is how far the host's clock and the store's may differ before it
// matters: a tick that is due within it counts as due.
const MostSkew = 5 * time.Second
