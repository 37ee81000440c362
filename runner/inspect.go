package runner

import (
	"context"
	"fmt"
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

// Finding tells whether the tables fit this binary.
func (s SchemaStatus) Finding() Finding {
	f := Finding{Check: "schema", Severity: Fine, Found: fmt.Sprintf("schema version %d, as this oncectl has", s.Version)}
	switch {
	case s.OldestBinary > s.Binary:
		f.Severity, f.Do = Problem, "use a newer oncectl"
		f.Found = fmt.Sprintf("schema version %d is for oncectl with version %d or later, this one has %d", s.Version, s.OldestBinary, s.Binary)
	case s.Version > s.Binary:
		f.Severity = Note
		f.Found = fmt.Sprintf("schema version %d is newer than this oncectl's %d, which may use it", s.Version, s.Binary)
	case s.Version < s.Binary:
		f.Severity, f.Do = Problem, "'oncectl schema apply'"
		f.Found = fmt.Sprintf("schema version %d is older than this oncectl's %d", s.Version, s.Binary)
	}
	return f
}
