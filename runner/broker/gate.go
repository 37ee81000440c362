package broker

import (
	"context"
	"sync"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// lossNotice bounds how long a request whose lock was just lost waits for the
// run to notice it too. The run does so within the lease's deadline.
const lossNotice = runner.LeaseDeadline

// gate holds requests back while there is no lock to make them under.
type gate struct {
	mu      sync.Mutex
	now     pass
	open    bool
	err     error         // once it is set, it is the answer to everything
	changed chan struct{} // closed at the next change

	refused  context.Context // ends with err
	endWaits context.CancelCauseFunc
}

// pass is what a request that got through works with.
type pass struct {
	run     runner.Run
	claimer runner.Claimer
	changed <-chan struct{} // closed once the pass is out of date
}

func newGate() *gate {
	g := &gate{changed: make(chan struct{})}
	g.refused, g.endWaits = context.WithCancelCause(context.Background())
	return g
}

// set changes the gate, unless it is shut for good.
func (g *gate) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return
	}
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *gate) serve(run runner.Run, c runner.Claimer) {
	g.set(func() { g.open, g.now = true, pass{run: run, claimer: c} })
}

func (g *gate) hold() { g.set(func() { g.open = false }) }

func (g *gate) refuse(err error) {
	g.set(func() {
		g.err = err
		g.endWaits(err)
	})
}

// unlessRefused is ctx, ended by refuse too, for who waits for something else.
func (g *gate) unlessRefused(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.refused, func() { cancel(context.Cause(g.refused)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// enter waits for the gate to open.
func (g *gate) enter(ctx context.Context) (pass, error) {
	for {
		g.mu.Lock()
		now, open, err, changed := g.now, g.open, g.err, g.changed
		g.mu.Unlock()
		now.changed = changed
		switch {
		case err != nil:
			return pass{}, err
		case open:
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return pass{}, context.Cause(ctx)
		}
	}
}

// outdated waits until p is, and reports false if it stays as it is.
func (p pass) outdated(ctx context.Context) bool {
	t := time.NewTimer(lossNotice)
	defer t.Stop()
	select {
	case <-p.changed:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
