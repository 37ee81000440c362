package cmd

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// paintEvery is how often the progress is painted at most.
const paintEvery = 100 * time.Millisecond

// progress shows how far a batch is, on a terminal only. It has no end to fill a
// bar up to: a batch is read as it comes.
type progress struct {
	w              io.Writer // nil: no terminal
	now            func() time.Time
	start, painted time.Time
	count          int
}

func newProgress(env *Env) *progress {
	f, ok := env.Err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || env.Getenv("TERM") == "dumb" {
		return &progress{}
	}
	return &progress{w: f, now: env.Now, start: env.Now()}
}

// Add counts one event. A terminal that is gone is no reason to stop.
func (p *progress) Add() {
	if p.w == nil {
		return
	}
	p.count++
	now := p.now()
	if now.Sub(p.painted) < paintEvery {
		return
	}
	p.painted = now
	each := float64(p.count) / max(now.Sub(p.start), paintEvery).Seconds()
	fmt.Fprintf(p.w, "\rsending: %d, %.0f/s\x1b[K", p.count, each)
}

// Close takes the line away.
func (p *progress) Close() {
	if p.w != nil && p.count > 0 {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
