package delivery

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// answers is a receiver in virtual time that answers each request as f says.
type answers func(n int, req *http.Request) (status int, header http.Header)

func (f answers) client(o Options) (c *Client, at *[]time.Duration) {
	at = new([]time.Duration)
	var mu sync.Mutex
	start := time.Now()
	c = New(o, NewGate(4))
	c.random = noJitter
	c.transport = roundTrip(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		*at = append(*at, time.Since(start))
		n := len(*at)
		mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		status, header := f(n, req)
		return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: req}, nil
	})
	return c, at
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func after(value string) http.Header { return http.Header{"Retry-After": {value}} }

func TestDeliver_WhenRefusedAlways_TriesAsOftenAsToldAndTellsWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(func(int, *http.Request) (int, http.Header) { return 429, after("7") })
		c, at := f.client(Options{Retries: 2})
		got := c.Deliver(context.Background(), message("http://receiver/"))
		if got.Outcome != runner.Failed || got.Attempts != 3 || len(*at) != 3 || got.Status != 429 ||
			!got.RetryAt.Equal(time.Now().Add(7*time.Second)) || !strings.Contains(got.LastError, "429") {
			t.Errorf("got %+v after %v", got, *at)
		}
		for i, wait := range []time.Duration{0, 7020 * time.Millisecond, 14040 * time.Millisecond} {
			if (*at)[i] < wait || (*at)[i] > wait+100*time.Millisecond {
				t.Errorf("try %d at %v, want %v", i+1, (*at)[i], wait)
			}
		}
	})
}

func TestDeliver_WhenRefusedWithoutRetryAfter_FollowsTheCurve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(func(n int, _ *http.Request) (int, http.Header) {
			if n <= 3 {
				return 429, http.Header{}
			}
			return 200, http.Header{}
		})
		c, at := f.client(Options{Retries: 5})
		got := c.Deliver(context.Background(), message("http://receiver/"))
		if got.Outcome != runner.Delivered || got.Attempts != 4 || got.LastError != "" || !got.RetryAt.IsZero() {
			t.Errorf("got %+v", got)
		}
		for i, wait := range []time.Duration{0, 1020e6, 3040e6, 7060e6} {
			if (*at)[i] < wait || (*at)[i] > wait+10e6 {
				t.Errorf("try %d at %v, want %v", i+1, (*at)[i], wait)
			}
		}
	})
}

func TestDeliver_WhenRetryAfterIsBeyondMaxWait_EndsAtOnce(t *testing.T) {
	for _, value := range []string{"301", "1e9", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			f := answers(func(int, *http.Request) (int, http.Header) { return 429, after(value) })
			c, at := f.client(Options{Retries: 5})
			got := c.Deliver(context.Background(), message("http://receiver/"))
			if got.Outcome != runner.Failed || len(*at) != 1 || got.RetryAt.Before(time.Now().Add(300*time.Second)) {
				t.Errorf("%s: got %+v after %d requests", value, got, len(*at))
			}
			// The next message to that host is not even tried.
			next := c.Deliver(context.Background(), message("http://receiver/other"))
			if next.Outcome != runner.Failed || next.Attempts != 0 || next.LastError == "" || !next.RetryAt.Equal(got.RetryAt) || len(*at) != 1 {
				t.Errorf("%s: the next: got %+v, want retry at %v", value, next, got.RetryAt)
			}
		})
	}
}

// One message is refused ten times, more than its retries, while the host
// delivers others: none of these counts.
func TestDeliver_WhenTheHostDeliversOthers_DoesNotCountRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := 0
		f := answers(func(_ int, req *http.Request) (int, http.Header) {
			if req.URL.Path == "/unlucky" && refusals < 10 {
				refusals++
				return 429, after("1")
			}
			return 200, http.Header{}
		})
		c, _ := f.client(Options{Retries: 2})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				c.Deliver(ctx, message("http://receiver/other"))
			}
		})
		got := c.Deliver(context.Background(), message("http://receiver/unlucky"))
		cancel()
		wg.Wait()
		if got.Outcome != runner.Delivered || got.Attempts != 11 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestDeliver_WhenAnIdempotentTryHas503WithRetryAfter_WaitsForThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(func(n int, _ *http.Request) (int, http.Header) {
			if n == 1 {
				return 503, after("9")
			}
			return 200, http.Header{}
		})
		c, at := f.client(Options{Retries: 2})
		m := message("http://receiver/")
		m.Idempotent = true
		if got := c.Deliver(context.Background(), m); got.Outcome != runner.Delivered || (*at)[1] < 9*time.Second {
			t.Errorf("got %+v after %v", got, *at)
		}
	})
}

func TestDeliver_WhenInterruptedWhileWaiting_SaysThatNothingWasDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(func(int, *http.Request) (int, http.Header) { return 429, after("60") })
		c, at := f.client(Options{Retries: 2})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		start := time.Now()
		got := c.Deliver(ctx, message("http://receiver/"))
		if !got.Interrupted || got.Outcome != runner.Failed || got.Attempts != 1 || got.LastError == "" || time.Since(start) != 5*time.Second {
			t.Errorf("waiting for the next try: got %+v", got)
		}
		got = c.Deliver(ctx, message("http://receiver/"))
		if !got.Interrupted || got.Outcome != runner.Failed || got.Attempts != 0 || got.LastError == "" || len(*at) != 1 {
			t.Errorf("before the first try: got %+v", got)
		}
	})
}

// The request in flight when the context ends has the grace to be answered.
func TestDeliver_WhenInterruptedInFlight_FinishesWithinTheGrace(t *testing.T) {
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	send := func(grace time.Duration, then func()) (got runner.DeliveryResult) {
		c := newClient(t, Options{Grace: grace})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { got = c.Deliver(ctx, message(s.URL)) })
		<-arrived
		cancel()
		then()
		wg.Wait()
		return got
	}
	if got := send(0, func() {}); got.Outcome != runner.InDoubt || !strings.Contains(got.LastError, "interrupted") {
		t.Errorf("without grace: got %+v", got)
	}
	if got := send(time.Minute, func() { close(answer) }); got.Outcome != runner.Delivered {
		t.Errorf("within the grace: got %+v", got)
	}
}
