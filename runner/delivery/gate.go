package delivery

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/oncectl/oncectl/runner"
)

// Gate is the runner.SendGate of one process: one weighted semaphore for all
// requests in flight, and one pace per host. A sender first waits for its
// host's turn and then for the semaphore, so that a host which wants silence
// holds nobody back but its own senders.
type Gate struct {
	inFlight *semaphore.Weighted

	mu    sync.Mutex // guards all below
	hosts map[string]*host
}

// NewGate makes a gate for at most concurrency requests in flight.
func NewGate(concurrency int) *Gate {
	return &Gate{inFlight: semaphore.NewWeighted(int64(concurrency)), hosts: map[string]*host{}}
}

// host is the queue before one host's pace, first come first served.
type host struct {
	name    string
	pace    pace
	waiting list.List // of *waiter
	timer   *time.Timer
}

// waiter is a sender in the queue. Its fields are set before ready is closed.
type waiter struct {
	ready    chan struct{}
	patience time.Duration
	turn     turn
	err      error
}

// Acquire waits for host's turn and for the semaphore. If the host was told to
// hold while the semaphore was waited for, the turn is void and begins again.
func (g *Gate) Acquire(ctx context.Context, name string, patience time.Duration) (runner.SendPermit, error) {
	for {
		h, t, err := g.awaitTurn(ctx, name, patience)
		if err != nil {
			return nil, err
		}
		if err := g.inFlight.Acquire(ctx, 1); err != nil {
			g.giveUp(h)
			return nil, context.Cause(ctx)
		}
		if p, ok := g.begin(h, t); ok {
			return p, nil
		}
		g.inFlight.Release(1)
	}
}

// awaitTurn queues up and waits.
func (g *Gate) awaitTurn(ctx context.Context, name string, patience time.Duration) (*host, turn, error) {
	if ctx.Err() != nil {
		return nil, turn{}, context.Cause(ctx)
	}
	w := &waiter{ready: make(chan struct{}), patience: patience}
	g.mu.Lock()
	h := g.hosts[name]
	if h == nil {
		h = &host{name: name, pace: newPace()}
		g.hosts[name] = h
	}
	place := h.waiting.PushBack(w)
	g.serve(h)
	g.mu.Unlock()

	select {
	case <-w.ready:
		return h, w.turn, w.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.ready:
		if w.err == nil {
			h.pace.giveUp()
		}
	default:
		h.waiting.Remove(place)
	}
	g.serve(h)
	return nil, turn{}, context.Cause(ctx)
}

// begin makes a turn into a permit, unless the host has been told to hold.
func (g *Gate) begin(h *host, t turn) (*permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !h.pace.valid(t, time.Now()) {
		h.pace.giveUp()
		g.serve(h)
		return nil, false
	}
	return &permit{gate: g, host: h, turn: t, delivered: h.pace.delivered}, true
}

func (g *Gate) giveUp(h *host) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.pace.giveUp()
	g.serve(h)
}

// serve gives turns to those in h's queue as far as its pace allows, and sees
// to it that it is called again when it allows more. A host that has no use
// for its memory is forgotten. The caller holds mu.
func (g *Gate) serve(h *host) {
	now := time.Now()
	h.turnAway(now)
	for place := h.waiting.Front(); place != nil; place = h.waiting.Front() {
		ok, at := h.pace.ready(now)
		if !ok {
			g.serveAt(h, at, now)
			return
		}
		w := h.waiting.Remove(place).(*waiter)
		w.turn = h.pace.begin(now)
		close(w.ready)
	}
	blank, from := h.pace.blank()
	if blank && now.Before(from) {
		g.serveAt(h, from, now)
		return
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	if blank {
		delete(g.hosts, h.name)
	}
}

// serveAt arranges the next call of serve; the zero time means that some
// request must end first, which calls it.
func (g *Gate) serveAt(h *host, at, now time.Time) {
	switch {
	case at.IsZero():
	case h.timer != nil:
		h.timer.Reset(at.Sub(now))
	default:
		h.timer = time.AfterFunc(at.Sub(now), func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.serve(h)
		})
	}
}

// turnAway fails those whose patience is shorter than the silence that the
// host wants.
func (h *host) turnAway(now time.Time) {
	silence := h.pace.heldUntil.Sub(now)
	if silence <= 0 {
		return
	}
	for place := h.waiting.Front(); place != nil; {
		next := place.Next()
		if w := place.Value.(*waiter); w.patience < silence {
			w.err = &runner.HeldError{Host: h.name, Until: h.pace.heldUntil}
			h.waiting.Remove(place)
			close(w.ready)
		}
		place = next
	}
}

// permit is the right to send one request to host.
type permit struct {
	gate      *Gate
	host      *host
	turn      turn
	delivered uint64
}

// Delivered implements runner.SendPermit.
func (p *permit) Delivered() uint64 { return p.delivered }

// Done implements runner.SendPermit.
func (p *permit) Done(f runner.Feedback) uint64 {
	p.gate.inFlight.Release(1)
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.host.pace.answered(p.turn, f, time.Now())
	delivered := p.host.pace.delivered
	p.gate.serve(p.host)
	return delivered
}
