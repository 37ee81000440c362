package delivery

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// statusServer answers /N with status N.
func statusServer(t *testing.T) (url string, count *atomic.Int64) {
	t.Helper()
	count = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, count
}

// The table of the contract: what each status means, and how often it is sent
// with two retries allowed.
func wantOf(status int, idempotent bool) (outcome runner.Outcome, tries int) {
	switch {
	case status <= 299:
		return runner.Delivered, 1
	case status == 425, status == 429:
		return runner.Failed, 3
	case status == 408, status >= 500:
		if idempotent {
			return runner.InDoubt, 3
		}
		return runner.InDoubt, 1
	}
	return runner.Failed, 1
}

func TestDeliver_ForEveryStatus_DecidesAsTheContractSays(t *testing.T) {
	url, count := statusServer(t)
	for status := 200; status <= 599; status++ {
		for _, idempotent := range []bool{false, true} {
			c := newClient(t, Options{Retries: 2})
			count.Store(0)
			m := message(fmt.Sprintf("%s/%d", url, status))
			m.Idempotent = idempotent
			got := c.Deliver(context.Background(), m)
			c.Close()
			outcome, tries := wantOf(status, idempotent)
			if got.Outcome != outcome || got.Attempts != tries || int(count.Load()) != tries || got.Status != status {
				t.Errorf("%d, idempotent %v: got %+v after %d requests, want %s after %d",
					status, idempotent, got, count.Load(), outcome, tries)
			}
			if (got.LastError == "") != (outcome == runner.Delivered) {
				t.Errorf("%d: got error %q", status, got.LastError)
			}
		}
	}
}

func TestDeliver_WhenToldToRetryOn_RepeatsAndIsSure(t *testing.T) {
	url, count := statusServer(t)
	c := newClient(t, Options{Retries: 2, RetryOn: []int{503}})
	got := c.Deliver(context.Background(), message(url+"/503"))
	if got.Outcome != runner.Failed || count.Load() != 3 {
		t.Errorf("503: got %+v after %d requests", got, count.Load())
	}
	count.Store(0)
	got = c.Deliver(context.Background(), message(url+"/429"))
	if got.Outcome != runner.Failed || count.Load() != 1 {
		t.Errorf("429, which was taken off the list: got %+v after %d requests", got, count.Load())
	}
}

func TestDeliver_WhenAnEarlierTryIsInDoubt_StaysInDoubt(t *testing.T) {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.WriteHeader(502)
			return
		}
		w.WriteHeader(409)
	}))
	defer s.Close()
	m := message(s.URL)
	m.Idempotent = true
	got := newClient(t, Options{Retries: 2}).Deliver(context.Background(), m)
	if got.Outcome != runner.InDoubt || got.Status != 409 || got.Attempts != 2 || !strings.Contains(got.LastError, "earlier") {
		t.Errorf("got %+v", got)
	}
}

func TestDeliver_WhenRedirected_NamesTheLocationAndDoesNotFollow(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var n atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			w.Header().Set("Location", "https://user:hunter2@example.org/new?token=hunter2#hunter2")
			w.WriteHeader(status)
		}))
		got := newClient(t, Options{Retries: 2}).Deliver(context.Background(), message(s.URL))
		s.Close()
		if got.Outcome != runner.Failed || n.Load() != 1 {
			t.Errorf("%d: got %+v after %d requests", status, got, n.Load())
		}
		if !strings.Contains(got.LastError, "Location https://example.org/new:") || strings.Contains(got.LastError, "hunter2") {
			t.Errorf("%d: got error %q", status, got.LastError)
		}
	}
}

func TestDeliver_WhenItFails_KeepsSecretsOutOfTheError(t *testing.T) {
	url, _ := statusServer(t)
	secret := strings.Replace(url, "http://", "http://hunter2:hunter2@", 1)
	c := newClient(t, Options{Retries: 1})
	refused := "http://hunter2:hunter2@127.0.0.1:1/hunter2?hunter2"
	for _, u := range []string{secret + "/503?hunter2", secret + "/404#hunter2", refused, "http://hunter2:%zz@h/", "http://h:hunter2/", "hunter2"} {
		m := message(u)
		m.Header = map[string][]string{"Authorization": {"hunter2"}, "X-Key": {"hunter2\x00"}}
		if !strings.HasSuffix(u, "#hunter2") {
			delete(m.Header, "X-Key")
		}
		got := c.Deliver(context.Background(), m)
		if got.LastError == "" || strings.Contains(got.LastError, "hunter2") {
			t.Errorf("%s: got error %q", u, got.LastError)
		}
	}
}
