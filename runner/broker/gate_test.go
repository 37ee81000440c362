package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncectl/oncectl/runner"
)

// entering is a request that waits at a gate.
type entering struct {
	pass pass
	err  error
}

func enterLater(ctx context.Context, g *gate) <-chan entering {
	c := make(chan entering, 1)
	go func() {
		p, err := g.enter(ctx)
		c <- entering{p, err}
	}()
	return c
}

func TestGate_WhenHeld_RequestsWaitForHoursUntilServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		first := enterLater(t.Context(), g)
		synctest.Wait()
		if len(first) > 0 {
			t.Fatal("a request went through before the first Serve")
		}
		g.serve(theRun, newMemory())
		if e := <-first; e.err != nil || e.pass.run.ID != theRun.ID {
			t.Fatalf("got %+v", e)
		}
		g.hold()
		second := enterLater(t.Context(), g)
		time.Sleep(5 * time.Hour)
		if len(second) > 0 {
			t.Fatal("a request went through a gate that is held")
		}
		next := newMemory()
		g.serve(theRun, next)
		if e := <-second; e.err != nil || e.pass.claimer != next {
			t.Fatalf("got %+v, want the claimer of the new lock", e)
		}
	})
}

func TestGate_WhenRefused_WaitingAndLaterRequestsFailForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		waiting := enterLater(t.Context(), g)
		synctest.Wait()
		g.refuse(fmt.Errorf("the job is ended: %w", runner.ErrLockLost))
		if e := <-waiting; !errors.Is(e.err, runner.ErrLockLost) {
			t.Errorf("waiting: %v", e.err)
		}
		g.serve(theRun, newMemory())
		g.hold()
		g.refuse(errGone)
		if _, err := g.enter(t.Context()); !errors.Is(err, runner.ErrLockLost) {
			t.Errorf("later: %v", err)
		}
	})
}

func TestGate_WhenTheCallerGoes_ItsRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		waiting := enterLater(ctx, newGate())
		synctest.Wait()
		cancel(errNoSlot)
		if e := <-waiting; !errors.Is(e.err, errNoSlot) {
			t.Errorf("got %v", e.err)
		}
	})
}

// Who finds the lock lost before the run has noticed waits for the run, but not
// for ever.
func TestPass_WhenTheGateStaysAsItIs_IsOutdatedAtMostAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.serve(theRun, newMemory())
		p, _ := g.enter(t.Context())
		start := time.Now()
		if p.outdated(t.Context()) || time.Since(start) != runner.LeaseDeadline {
			t.Errorf("outdated, after %v", time.Since(start))
		}
		time.AfterFunc(time.Second, g.hold)
		if !p.outdated(t.Context()) {
			t.Error("not outdated by Hold")
		}
	})
}

func TestServer_WhenTheLockIsLostInAClaim_TheClaimIsRepeatedUnderTheNextWithItsToken(t *testing.T) {
	for method, call := range calls() {
		t.Run(method, func(t *testing.T) {
			old, next := newMemory(), newMemory()
			s, asked := listen(t, nil), make(chan bool, 1)
			old.before = func(context.Context) error { asked <- true; return fmt.Errorf("heartbeat: %w", runner.ErrLockLost) }
			s.Serve(theRun, whole{old})
			done, c := make(chan error, 1), dial(t, s)
			go func() { done <- call(c) }()
			within(t, asked, "the claim under the old lock")
			s.Hold()
			if len(next.requests()) > 0 || len(done) > 0 {
				t.Fatal("it did not wait for the next lock")
			}
			s.Serve(theRun, whole{next})
			if err := within(t, done, "the claim under the new lock"); err != nil {
				t.Fatal(err)
			}
			first, again := old.requests()[0], next.requests()[0]
			if diff := cmp.Diff(first, again, cmp.AllowUnexported(renewRequest{})); diff != "" {
				t.Errorf("the repeat differs (-first +again):\n%s", diff)
			}
			if req, ok := again.(runner.ClaimRequest); ok && checkToken(req.Token) != nil || ok && req.Token == "" {
				t.Errorf("claimed with token %q", req.Token)
			}
		})
	}
}

func TestServer_WhenHeldAndThenRefused_TheWaitingClaimIsRefused(t *testing.T) {
	m := newMemory()
	s := serving(t, m)
	s.Hold()
	claims := claimLater(dial(t, s), "a")
	awaitGoroutine(t, "(*gate).enter")
	s.Refuse(runner.ErrLockLost)
	if r := within(t, claims, "the refusal"); !errors.Is(r.err, runner.ErrLockLost) {
		t.Errorf("got %v, %v", r.won, r.err)
	}
	if len(m.requests()) > 0 {
		t.Error("the claim reached the store")
	}
}

func TestServer_WhenClosedWhileClaimsWait_TheyEndAndSaySo(t *testing.T) {
	m := newMemory()
	s := listen(t, nil)
	claims := claimLater(dial(t, s), "a")
	awaitGoroutine(t, "(*gate).enter")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r := within(t, claims, "the end")
	if !errors.Is(r.err, runner.ErrUnavailable) || len(m.requests()) > 0 {
		t.Errorf("got %v, %v", r.won, r.err)
	}
}
