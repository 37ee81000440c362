package main

import (
	"net/http"
	"sync"
	"time"
)

// bucket takes rate requests a second, and a tenth of that and one more in a
// burst; it refuses the others. It knows those it took by their Idempotency-Key.
type bucket struct {
	mu                sync.Mutex
	rate, tokens      float64
	filled            time.Time
	taken             map[string]bool
	refused, repeated int
}

// newBucket returns nil, which takes everything, if there is no rate.
func newBucket(rate float64) *bucket {
	if rate <= 0 {
		return nil
	}
	return &bucket{rate: rate, tokens: rate/10 + 1, filled: time.Now(), taken: map[string]bool{}}
}

func (b *bucket) admit(r *http.Request) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.rate/10+1, b.tokens+b.rate*now.Sub(b.filled).Seconds())
	b.filled = now
	if b.tokens < 1 {
		b.refused++
		return false
	}
	b.tokens--
	if id := r.Header.Get("Idempotency-Key"); b.taken[id] {
		b.repeated++
	} else {
		b.taken[id] = true
	}
	return true
}
