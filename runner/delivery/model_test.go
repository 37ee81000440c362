package delivery

import (
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// receiver is an in-memory host for tests in virtual time: a token bucket, or
// a limit of requests in flight, behind a latency.
type receiver struct {
	rate, burst float64 // rate 0: no bucket
	flight      int     // 0: no limit in flight
	retryAfter  string  // empty: not said
	latency     time.Duration
	wobble      time.Duration // added to the latency, at random
	prompt      bool          // refusals come at once
	halveAt     int           // the limits halve after so many were taken

	mu       sync.Mutex
	random   *rand.Rand
	tokens   float64
	at       time.Time
	inFlight int
	taken    int
	refused  int
	most     int
	last     time.Time // when the last one was taken
	seen     map[string]int
	refusals []time.Time
	starts   []time.Time
}

func newBucket(rate float64, seed uint64) *receiver {
	return &receiver{
		rate: rate, burst: rate/10 + 1, retryAfter: "1", latency: 20 * time.Millisecond,
		random: rand.New(rand.NewPCG(seed, 1)),
	}
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	status, wait := r.admit(req.Header.Get("Idempotency-Key"))
	time.Sleep(wait)
	r.mu.Lock()
	r.inFlight--
	r.mu.Unlock()
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req}
	if status == http.StatusTooManyRequests && r.retryAfter != "" {
		res.Header.Set("Retry-After", r.retryAfter)
	}
	return res, nil
}

func (r *receiver) admit(id string) (int, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.at.IsZero() {
		r.tokens, r.seen = r.burst, map[string]int{}
	} else {
		r.tokens = min(r.burst, r.tokens+now.Sub(r.at).Seconds()*r.rate)
	}
	r.at = now
	r.starts = append(r.starts, now)
	r.inFlight++
	r.most = max(r.most, r.inFlight)
	wait := r.latency
	if r.wobble > 0 {
		wait += time.Duration(r.random.Int64N(int64(r.wobble)))
	}
	if r.rate > 0 && r.tokens < 1 || r.flight > 0 && r.inFlight > r.flight {
		r.refused++
		r.refusals = append(r.refusals, now)
		if r.prompt {
			wait = 0
		}
		return http.StatusTooManyRequests, wait
	}
	r.tokens--
	r.taken++
	r.seen[id]++
	r.last = now.Add(wait)
	if r.taken == r.halveAt {
		r.rate, r.burst, r.flight = r.rate/2, r.burst/2, (r.flight+1)/2
	}
	return http.StatusOK, wait
}
