package delivery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-retry"
	"pgregory.net/rapid"
)

func waits(b retry.Backoff, most int) (all []time.Duration) {
	for range most {
		wait, stop := b.Next()
		if stop {
			break
		}
		all = append(all, wait)
	}
	return all
}

func noJitter() float64 { return 0 }

func options() Options { return Options{Retries: 5}.withDefaults() }

func TestBackoff_WithoutAnyHint_DoublesUpToTheMaximum(t *testing.T) {
	o := options()
	o.Retries, o.BackoffMax = 6, 10*time.Second
	got := waits(newBackoff(o, &hint{after: noRetryAfter}, noJitter), 100)
	want := []time.Duration{1e9, 2e9, 4e9, 8e9, 10e9, 10e9}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBackoff_WithRetryAfter_LetsItWinOverTheCurve(t *testing.T) {
	h := &hint{after: noRetryAfter}
	b := newBackoff(options(), h, noJitter)
	var got []time.Duration
	for _, after := range []time.Duration{noRetryAfter, 30 * time.Second, 0, noRetryAfter} {
		h.after = after
		got = append(got, waits(b, 1)...)
	}
	want := []time.Duration{1e9, 30e9, 0, 8e9} // the curve moves on below
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBackoff_WhenRetryAfterIsBeyondMaxWait_Stops(t *testing.T) {
	o := options()
	for after, want := range map[time.Duration]bool{o.MaxWait: false, o.MaxWait + 1: true, retryAfterLimit: true} {
		if _, stop := newBackoff(o, &hint{after: after}, noJitter).Next(); stop != want {
			t.Errorf("%v: got stop %v, want %v", after, stop, want)
		}
	}
}

func TestBackoff_WhenTriesAreFree_NeitherCountsThemNorMovesOn(t *testing.T) {
	h := &hint{after: noRetryAfter, free: true}
	b := newBackoff(options(), h, noJitter)
	if got := waits(b, 20); len(got) != 20 || got[19] != 0 {
		t.Errorf("free tries: got waits %v", got)
	}
	h.free = false
	if diff := cmp.Diff([]time.Duration{1e9, 2e9, 4e9, 8e9, 16e9}, waits(b, 100)); diff != "" {
		t.Error(diff)
	}
	h.free = true
	if got := len(waits(b, 1000)); got != maxFreeTries-20 {
		t.Errorf("got %d more free tries, want %d", got, maxFreeTries-20)
	}
}

func TestBackoff_WithAnyJitter_IsNeverShorterThanTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		after := time.Duration(rapid.Int64Range(0, int64(5*time.Minute)).Draw(t, "after"))
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		got, stop := newBackoff(options(), &hint{after: after}, func() float64 { return random }).Next()
		if stop || got < after || got > after+max(after/10, 100*time.Millisecond) {
			t.Errorf("got %v, %v", got, stop)
		}
	})
}
