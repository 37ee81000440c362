package broker

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// defaultPatience is that of 'oncectl send' (--max-wait).
const defaultPatience = 5 * time.Minute

// slots are the permits that requests hold.
type slots struct {
	gate runner.SendGate // nil: there are none

	mu   sync.Mutex
	next uint64
	held map[string]*heldSlot
}

type heldSlot struct {
	permit runner.SendPermit
	done   chan struct{} // closed once the permit is given back
}

func newSlots(g runner.SendGate) *slots { return &slots{gate: g, held: map[string]*heldSlot{}} }

func (t *slots) add(p runner.SendPermit) (id string, slot *heldSlot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	id = strconv.FormatUint(t.next, 10)
	slot = &heldSlot{permit: p, done: make(chan struct{})}
	t.held[id] = slot
	return id, slot
}

// give gives a slot's permit back, unless that was done before.
func (t *slots) give(id string, f runner.Feedback) (delivered uint64, ok bool) {
	t.mu.Lock()
	slot := t.held[id]
	delete(t.held, id)
	t.mu.Unlock()
	if slot == nil {
		return 0, false
	}
	defer close(slot.done)
	return slot.permit.Done(f), true
}

// noFeedback is what the gate is told of a request that nobody speaks for.
func noFeedback() runner.Feedback {
	return runner.Feedback{Answer: runner.AnswerNone, RetryAfter: -1}
}

// acquire gives a permit only under the lock, which may be lost while the
// host's turn is waited for: a paused run must not begin to send.
func (s *Server) acquire(ctx context.Context, host string, patience time.Duration) (runner.SendPermit, error) {
	if _, err := s.gate.enter(ctx); err != nil {
		return nil, err
	}
	turn, cancel := s.gate.unlessRefused(ctx)
	defer cancel()
	permit, err := s.slots.gate.Acquire(turn, host, patience)
	if err != nil {
		return nil, err
	}
	if _, err := s.gate.enter(ctx); err != nil {
		permit.Done(noFeedback())
		return nil, err
	}
	return permit, nil
}

// slot holds a permit for as long as its caller stays connected.
func (s *Server) slot(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b slotBody
	if err := s.parse(w, r, maxBody, &b); err != nil {
		return 0, nil, err
	}
	patience, err := b.patience()
	if err != nil {
		return 0, nil, err
	}
	if s.slots.gate == nil {
		return 0, nil, fmt.Errorf("sending: %w", errUnsupported)
	}
	ctx, cancel := s.waiting(r)
	defer cancel()
	permit, err := s.acquire(ctx, b.Host, patience)
	if err != nil {
		return 0, nil, err
	}
	id, slot := s.slots.add(permit)
	defer s.slots.give(id, noFeedback())
	if !writeLine(w, slotAnswer{Slot: id, Delivered: permit.Delivered()}) {
		return 0, nil, nil
	}
	select {
	case <-slot.done:
	case <-ctx.Done():
	}
	return 0, nil, nil
}

func (b slotBody) patience() (time.Duration, error) {
	if b.Host == "" {
		return 0, fmt.Errorf("%w: a slot is for a host, as https://example.com:443", runner.ErrInvalid)
	}
	if err := checkText("host", b.Host); err != nil {
		return 0, err
	}
	if b.Patience == nil {
		return defaultPatience, nil
	}
	return time.Duration(*b.Patience), nil
}

// writeLine begins an answer that goes on, and reports whether it is under way.
func writeLine(w http.ResponseWriter, v any) bool {
	line, err := encode(v)
	if err != nil {
		return false
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(line); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}

// slotDone takes the caller's word for how its request went. It needs no lock.
func (s *Server) slotDone(id string) endpoint {
	return func(w http.ResponseWriter, r *http.Request) (int, any, error) {
		var b feedbackBody
		if err := s.parse(w, r, maxBody, &b); err != nil {
			return 0, nil, err
		}
		f, err := b.feedback()
		if err != nil {
			return 0, nil, err
		}
		delivered, ok := s.slots.give(id, f)
		if !ok {
			return 0, nil, fmt.Errorf("%w: %q", errNoSlot, id)
		}
		return http.StatusOK, feedbackAnswer{delivered}, nil
	}
}
