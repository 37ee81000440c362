package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	for range concurrency {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				m := runner.Message{ID: runner.EventID(strconv.FormatInt(i, 10)), URL: "http://receiver/"}
				if got := c.Deliver(context.Background(), m); got.Outcome != runner.Delivered {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start), int(failed.Load())
}

// least is the time that a token bucket, or the senders, need for n messages.
func least(r *receiver, n, concurrency int) time.Duration {
	bucket := (float64(n) - r.burst) / r.rate
	senders := float64(n) / float64(concurrency) * (r.latency+r.wobble/2).Seconds()
	return time.Duration(max(bucket, senders) * float64(time.Second))
}

func TestTune(t *testing.T) {
	for _, ra := range []string{"1", ""} {
		for _, rate := range []float64{20, 50, 100, 150, 500, 1000} {
			for _, c := range []int{4, 8, 16, 64} {
				for _, n := range []int{1000, 10000} {
					worst, sum, refused, lost := 0.0, 0.0, 0.0, 0
					events := 0
					seeds := uint64(5)
					for seed := range seeds {
						synctest.Test(t, func(t *testing.T) {
							r := newBucket(rate, seed)
							r.retryAfter = ra
							r.wobble = time.Duration(seed) * time.Millisecond
							want := least(r, n, c)
							took, l := batch(t, r, n, c, seed)
							ratio := took.Seconds() / want.Seconds()
							worst, sum = max(worst, ratio), sum+ratio
							refused = max(refused, float64(r.refused)/float64(r.refused+r.taken))
							lost += l
							var last time.Time
							for _, at := range r.refusals {
								if at.Sub(last) > 500*time.Millisecond {
									events++
								}
								last = at
							}
						})
					}
					mark := ""
					if worst > 1.25 || (n == 10000 && worst > 1.1) || refused > .05 || lost > 0 {
						mark = "  <<<"
					}
					fmt.Printf("ra=%q R=%v c=%d n=%d worst %.3f mean %.3f refused %.3f events %.1f lost %d%s\n", ra, rate, c, n, worst, sum/float64(seeds), refused, float64(events)/float64(seeds), lost, mark)
				}
			}
		}
	}
}
