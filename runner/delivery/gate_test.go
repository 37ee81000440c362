package delivery

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncectl/oncectl/runner"
)

const far = time.Hour

func acquire(t *testing.T, g *Gate, host string) runner.SendPermit {
	t.Helper()
	p, err := g.Acquire(context.Background(), host, far)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func refusal(after time.Duration) runner.Feedback {
	return runner.Feedback{Answer: runner.AnswerRefused, RetryAfter: after}
}

var taken = runner.Feedback{Answer: runner.AnswerDelivered, RetryAfter: noRetryAfter}

// remembered is how many hosts are, when nobody has sent anything for a while.
func remembered(g *Gate) int {
	time.Sleep(idleReset)
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.hosts)
}

func TestGate_WhenManySend_BoundsThoseInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBucket(0, 1)
		if took, lost := batch(t, r, 40, 4, 1); lost > 0 || r.most != 4 || took != 200*time.Millisecond {
			t.Errorf("%d in flight, %d lost, %v", r.most, lost, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(3)
		inFlight, most := 0, 0
		var mu sync.Mutex
		spread(40, 40, func(i int) bool { // 40 senders, 8 hosts
			p := acquire(t, g, string(rune('a'+i%8)))
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			inFlight--
			mu.Unlock()
			p.Done(taken)
			return true
		})
		if most != 3 {
			t.Errorf("%d in flight, want 3", most)
		}
		if n := remembered(g); n != 0 {
			t.Errorf("%d hosts remembered that never refused", n)
		}
	})
}

// cases.md: 8 senders, the host says 429 with 2 s once.
func TestGate_WhenAHostRefuses_HoldsItsSendersBackAndNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(8)
		acquire(t, g, "a").Done(refusal(2 * time.Second))
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		spread(8, 8, func(int) bool {
			p := acquire(t, g, "a")
			mu.Lock()
			at = append(at, time.Since(start))
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			p.Done(taken)
			return true
		})
		acquire(t, g, "b").Done(taken)
		if at[0] < 2*time.Second || at[0] > 2*time.Second+time.Millisecond {
			t.Errorf("the first was sent after %v", at[0])
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < 20*time.Millisecond {
				t.Errorf("%v after the one before: not spread out (%v)", gap, at)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(8)
		acquire(t, g, "a").Done(refusal(time.Minute))
		start := time.Now()
		for range 20 {
			acquire(t, g, "b").Done(taken)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("another host was held back by %v", took)
		}
	})
}

// A turn that was given before the refusal, to a sender which then waited for
// the semaphore, is void.
func TestGate_WhenRefusedWhileWaitingForTheSemaphore_HoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1)
		first := acquire(t, g, "a")
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			p := acquire(t, g, "a")
			if took := time.Since(start); took < 2*time.Second {
				t.Errorf("sent %v after the refusal", took)
			}
			p.Done(taken)
		})
		synctest.Wait()
		first.Done(refusal(2 * time.Second))
		acquire(t, g, "b").Done(taken) // the semaphore is free meanwhile
		if took := time.Since(start); took > 0 {
			t.Errorf("another host waited for %v", took)
		}
		wg.Wait()
	})
}

func TestGate_WhenTheSilenceIsBeyondPatience_TurnsAwayAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(4)
		until := time.Now().Add(2 * time.Hour)
		held := func(err error) {
			t.Helper()
			var e *runner.HeldError
			if !errors.As(err, &e) || e.Host != "a" || !e.Until.Equal(until) {
				t.Errorf("got %v", err)
			}
		}
		p := acquire(t, g, "a")
		for range 3 {
			acquire(t, g, "a")
		}
		var wg sync.WaitGroup
		wg.Go(func() { // in the queue when the refusal comes
			_, err := g.Acquire(context.Background(), "a", far)
			held(err)
		})
		synctest.Wait()
		p.Done(refusal(2 * time.Hour))
		wg.Wait()
		_, err := g.Acquire(context.Background(), "a", far) // after it
		held(err)
	})
}

func TestGate_WhenTheContextEnds_GivesEverythingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1)
		p := acquire(t, g, "a")
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(context.Background())
		var wg sync.WaitGroup
		for range 10 { // some wait for the pace, some for the semaphore
			wg.Go(func() {
				if _, err := g.Acquire(ctx, "a", far); !errors.Is(err, stop) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		cancel(stop)
		wg.Wait()
		if _, err := g.Acquire(ctx, "a", far); !errors.Is(err, stop) {
			t.Errorf("after the end: got %v", err)
		}
		p.Done(taken)
		acquire(t, g, "a").Done(taken)
		if n := remembered(g); n != 0 {
			t.Errorf("hosts are left: %d", n)
		}
	})
}

// While a host takes nothing, one request at a time asks whether it does again,
// ever more rarely if it does not say when.
func TestGate_WhileAHostTakesNothing_AsksWithOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(4)
		var mu sync.Mutex
		var ends []time.Time
		inFlight := 0
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		spread(4, 4, func(int) bool {
			for {
				p, err := g.Acquire(ctx, "a", far)
				if err != nil {
					return true
				}
				mu.Lock()
				if inFlight++; inFlight > 1 && len(ends) >= 4 {
					t.Errorf("%d in flight after %d refusals", inFlight, len(ends))
				}
				mu.Unlock()
				time.Sleep(5 * time.Second)
				mu.Lock()
				inFlight--
				ends = append(ends, time.Now())
				mu.Unlock()
				p.Done(refusal(noRetryAfter))
			}
		})
		if n := len(ends); n > 30 || ends[n-1].Sub(ends[n-2]) != longestSilence+5*time.Second {
			t.Errorf("%d requests in ten minutes: %v", n, ends)
		}
	})
}
