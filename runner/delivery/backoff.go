package delivery

import (
	"math"
	"time"

	"github.com/sethvargo/go-retry"
)

// The decorators below do one thing each and read what the last try told from
// a hint. Put together by newBackoff they make the wait before the next try.
// A back-off serves one delivery: a used one has no tries left.

// hint is what the last try told about the wait for the next one.
type hint struct {
	// after is the receiver's Retry-After; negative if it did not say.
	after time.Duration
	// free says that the try does not count: it was refused while the host
	// delivered something else.
	free bool
}

// newBackoff: at most o.Retries that count; a Retry-After beyond o.MaxWait
// stops; jitter is added to the Retry-After or, without one, to the curve.
func newBackoff(o Options, h *hint, jitter func() float64) retry.Backoff {
	b := curve(o.Backoff, o.BackoffMax)
	b = withFreeTries(h, b)
	b = withRetryAfter(h, b)
	b = withMaxWait(h, o.MaxWait, b)
	b = withAddedJitter(jitter, b)
	return withRetries(h, o.Retries, b)
}

// curve doubles from first up to most.
func curve(first, most time.Duration) retry.Backoff {
	return retry.WithCappedDuration(most, retry.NewExponential(first))
}

// withFreeTries does not move the curve on after a try that does not count.
// Such a message needs no wait of its own, as the host's pace makes it wait.
func withFreeTries(h *hint, next retry.Backoff) retry.Backoff {
	return retry.BackoffFunc(func() (time.Duration, bool) {
		if h.free {
			return 0, false
		}
		return next.Next()
	})
}

// withRetryAfter lets the receiver's word win over the curve, which moves on
// nevertheless.
func withRetryAfter(h *hint, next retry.Backoff) retry.Backoff {
	return retry.BackoffFunc(func() (time.Duration, bool) {
		wait, stop := next.Next()
		if h.after >= 0 {
			wait = h.after
		}
		return wait, stop
	})
}

// withMaxWait stops where the receiver wants more than most.
func withMaxWait(h *hint, most time.Duration, next retry.Backoff) retry.Backoff {
	return retry.BackoffFunc(func() (time.Duration, bool) {
		if h.after > most {
			return 0, true
		}
		return next.Next()
	})
}

// withAddedJitter adds up to a tenth, and at least up to minJitter, so that a
// Retry-After of 0 makes no tight loop and no wait gets shorter. random is
// from [0, 1).
func withAddedJitter(random func() float64, next retry.Backoff) retry.Backoff {
	const minJitter = 100 * time.Millisecond
	return retry.BackoffFunc(func() (time.Duration, bool) {
		wait, stop := next.Next()
		if stop {
			return 0, true
		}
		most := max(minJitter, wait/10)
		return min(wait, math.MaxInt64-most) + time.Duration(random()*float64(most)), false
	})
}

// maxFreeTries bounds the tries of one message that do not count. A message
// which the host alone refuses, say for a quota of its own, would else hold
// back all others for as long as they go on.
const maxFreeTries = 100

// withRetries stops after so many tries that count.
func withRetries(h *hint, retries int, next retry.Backoff) retry.Backoff {
	free := 0
	return retry.BackoffFunc(func() (time.Duration, bool) {
		if h.free && free < maxFreeTries {
			free++
			return next.Next()
		}
		if retries <= 0 {
			return 0, true
		}
		retries--
		return next.Next()
	})
}
