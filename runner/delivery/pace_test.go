package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/oncectl/oncectl/runner"
)

// batch sends n messages to r, at most concurrency at a time, and returns how
// long that took and how many were not delivered.
func batch(t *testing.T, r *receiver, n, concurrency int, seed uint64) (took time.Duration, lost int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	var mu sync.Mutex
	c := New(Options{Retries: 5, Concurrency: concurrency}, NewGate(concurrency))
	c.transport = r
	c.random = func() float64 { mu.Lock(); defer mu.Unlock(); return random.Float64() }
	start := time.Now()
	lost = spread(n, concurrency, func(i int) bool {
		m := runner.Message{ID: runner.EventID(strconv.Itoa(i)), URL: "http://receiver/"}
		return c.Deliver(context.Background(), m).Outcome == runner.Delivered
	})
	return time.Since(start), lost
}

// spread calls send for 1 to n, so many at a time, and counts the failures.
func spread(n, concurrency int, send func(i int) bool) (failed int) {
	var next, bad atomic.Int64
	var wg sync.WaitGroup
	for range concurrency {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if !send(i) {
					bad.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(bad.Load())
}

// least is the time that the receiver, or the senders, need for n messages.
func least(r *receiver, n, concurrency int) time.Duration {
	latency := (r.latency + r.wobble/2).Seconds()
	if r.flight > 0 {
		concurrency = min(concurrency, r.flight)
	}
	need := float64(n) / float64(concurrency) * latency
	if r.rate > 0 {
		half := float64(r.halveAt)
		if half == 0 {
			half = float64(n)
		}
		need = max(need, (half-r.burst)/r.rate+(float64(n)-half)/(r.rate/2))
	}
	return time.Duration(need * float64(time.Second))
}

// check sends a batch in virtual time under several seeds and latencies.
func check(t *testing.T, n, concurrency int, most float64, receiver func(seed uint64) *receiver) {
	t.Helper()
	seeds := []uint64{0, 1, 2, 3, 4, 5}
	if n >= 10_000 {
		seeds = []uint64{1, 4}
	}
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := receiver(seed)
			r.wobble = []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond, time.Millisecond}[seed]
			r.prompt = seed%2 == 1
			want := least(r, n, concurrency)
			took, lost := batch(t, r, n, concurrency, seed)
			ratio := took.Seconds() / want.Seconds()
			refused := float64(r.refused) / float64(r.refused+r.taken)
			t.Logf("wobble %v: %.3f of the least time, %.2f %% refused", r.wobble, ratio, 100*refused)
			if lost > 0 || len(r.seen) != n || r.taken != n {
				t.Errorf("seed %d: %d given up; %d taken, %d of them different, of %d", seed, lost, r.taken, len(r.seen), n)
			}
			if ratio > most || refused > 0.05 {
				t.Errorf("seed %d: %.3f of the least time, more than %v; or %.1f %% refused", seed, ratio, most, 100*refused)
			}
		})
	}
}

func TestPace_AgainstATokenBucket_IsNearTheLeastTime(t *testing.T) {
	for _, c := range []struct {
		rate           float64
		n, concurrency int
		most           float64
	}{
		{100, 1000, 4, 1.25}, {100, 1000, 16, 1.25}, {100, 10_000, 4, 1.1}, {100, 10_000, 64, 1.1},
		{20, 1000, 4, 1.25}, {20, 10_000, 4, 1.1}, {20, 1000, 64, 1.25},
		{1000, 1000, 4, 1.25}, {1000, 10_000, 16, 1.25}, {1000, 10_000, 64, 1.25},
		{50, 1000, 8, 1.25}, {150, 10_000, 8, 1.1}, {400, 10_000, 16, 1.25},
	} {
		for _, after := range []string{"1", ""} {
			t.Run(fmt.Sprintf("%v a second, %d messages, %d at a time, Retry-After %q", c.rate, c.n, c.concurrency, after), func(t *testing.T) {
				check(t, c.n, c.concurrency, c.most, func(seed uint64) *receiver {
					r := newBucket(c.rate, seed)
					r.retryAfter = after
					return r
				})
			})
		}
	}
}

// Senders that record something between two requests may all be at that at once:
// nothing is in flight then, but what the host has taken so far still counts.
func TestPace_WhenNothingIsInFlightForAMoment_RemembersWhatTheHostTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, pause = 1000, 10 * time.Millisecond
		r := newBucket(100, 1)
		c := New(Options{Retries: 5, Concurrency: 4}, NewGate(4))
		c.transport = r
		start := time.Now()
		lost := spread(n, 4, func(i int) bool {
			time.Sleep(pause)
			m := runner.Message{ID: runner.EventID(strconv.Itoa(i)), URL: "http://receiver/"}
			return c.Deliver(context.Background(), m).Outcome == runner.Delivered
		})
		ratio := time.Since(start).Seconds() / least(r, n, 4).Seconds()
		t.Logf("%.3f of the least time, %d refused", ratio, r.refused)
		if lost > 0 || ratio > 1.25 || r.refused > n/20 {
			t.Errorf("%d lost, %d refused; %.3f of the least time, more than 1.25", lost, r.refused, ratio)
		}
	})
}

// With Retry-After: 1 the one refusal that shows the limit costs a second of
// the 4 that are needed: 1.25 is the least possible. What is bounded is that
// there is no second one.
func TestPace_AgainstALimitInFlight_FindsIt(t *testing.T) {
	for _, concurrency := range []int{4, 6, 16, 64} {
		for after, most := range map[string]float64{"1": 1.3, "": 1.1} {
			t.Run(fmt.Sprintf("%d at a time, Retry-After %q", concurrency, after), func(t *testing.T) {
				check(t, 1000, concurrency, most, func(seed uint64) *receiver {
					r := newBucket(0, seed)
					r.flight, r.retryAfter = 5, after
					return r
				})
			})
		}
	}
}

// Two refusals are needed to see the new limit: the first may be chance.
func TestPace_WhenTheLimitHalves_Follows(t *testing.T) {
	for _, c := range []struct {
		n    int
		most float64
	}{{1000, 1.4}, {5000, 1.25}} {
		for _, concurrency := range []int{4, 16} {
			t.Run(fmt.Sprintf("%d messages, %d at a time", c.n, concurrency), func(t *testing.T) {
				check(t, c.n, concurrency, c.most, func(seed uint64) *receiver {
					r := newBucket(100, seed)
					r.halveAt = c.n / 2
					return r
				})
			})
		}
	}
}

// A host whose limit doubles is found out in time.
func TestPace_WhenTheLimitRises_Follows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBucket(50, 1)
		const n = 20_000
		time.AfterFunc(30*time.Second, func() { r.mu.Lock(); r.rate, r.burst = 100, 11; r.mu.Unlock() })
		took, lost := batch(t, r, n, 4, 1)
		want := 30*time.Second + time.Duration(float64(n-1500)/100*float64(time.Second))
		if ratio := took.Seconds() / want.Seconds(); ratio > 1.4 || lost > 0 {
			t.Errorf("took %v, %.2f of the least time; %d lost", took, ratio, lost)
		}
	})
}

// What people do instead: four requests at a time, wait for as long as
// Retry-After says, five tries. Kept as the measure of what the pace is for.
func TestUsualRecipe_AgainstTheSameReceiver_LosesMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBucket(100, 1)
		r.prompt = true
		inFlight := semaphore.NewWeighted(4)
		lost := spread(1000, 1000, func(i int) bool {
			for range 5 {
				req := httptest.NewRequest("POST", "/", nil)
				req.Header.Set("Idempotency-Key", strconv.Itoa(i))
				inFlight.Acquire(context.Background(), 1)
				res, _ := r.RoundTrip(req)
				inFlight.Release(1)
				if res.StatusCode == http.StatusOK {
					return true
				}
				time.Sleep(time.Second)
			}
			return false
		})
		refused := float64(r.refused) / float64(r.refused+r.taken)
		t.Logf("%d of 1000 lost, %.0f %% of requests refused", lost, 100*refused)
		if lost < 100 || refused < 0.5 {
			t.Error("the recipe does well: the receiver is no test for the pace")
		}
	})
}

// Once for real: sockets, a scheduler, a server with a mutex.
func TestPace_AgainstARealServer_IsNearTheLeastTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	r := newBucket(100, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		res, _ := r.RoundTrip(req)
		if after := res.Header.Get("Retry-After"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(res.StatusCode)
	}))
	defer s.Close()
	const n = 1000
	c := New(Options{Retries: 5}, NewGate(4))
	defer c.Close()
	late := lateness(t)
	start := time.Now()
	lost := spread(n, 4, func(i int) bool {
		m := runner.Message{ID: runner.EventID(strconv.Itoa(i)), URL: s.URL, Body: []byte("x")}
		return c.Deliver(context.Background(), m).Outcome == runner.Delivered
	})
	ratio := time.Since(start).Seconds() / least(r, n, 4).Seconds()
	refused := float64(r.refused) / float64(n+r.refused)
	t.Logf("%.3f of the least time, %.2f %% refused", ratio, 100*refused)
	if mean := late(); ratio > 1.25 && mean > 3*time.Millisecond {
		t.Logf("timers were late by %v: the machine is too busy to judge the time", mean)
		ratio = 1
	}
	if lost > 0 || ratio > 1.25 || refused > 0.05 || len(r.seen) != n || r.taken != n {
		t.Errorf("%d lost, %d taken; %.3f of the least time, %.2f %% refused", lost, r.taken, ratio, 100*refused)
	}
}

// lateness watches how late timers are, on the mean, until it is asked.
func lateness(t *testing.T) (mean func() time.Duration) {
	const sleep = 20 * time.Millisecond
	stop := make(chan struct{})
	var sum, n time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			start := time.Now()
			select {
			case <-stop:
				return
			case <-time.After(sleep):
				sum, n = sum+time.Since(start)-sleep, n+1
			}
		}
	})
	return func() time.Duration {
		close(stop)
		wg.Wait()
		return sum / max(n, 1)
	}
}
