package cmd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"
)

// The sends of a run share one bound and one pace for each host.

func TestSend_WhenFortyAtOnceInARun_NeverMoreThanConcurrencyInFlight(t *testing.T) {
	t.Parallel()
	const sends, concurrency = 40, 4
	eachStore(t, func(t *testing.T, p *place) {
		rest := make(chan struct{})
		v := newReceiver(t, func(http.ResponseWriter, request) { <-rest })
		// By another name it is another host, with a pace of its own, so that
		// only the run's bound keeps both together below it.
		other := httptest.NewServer(v)
		defer other.Close()
		run := p.inside("--concurrency", strconv.Itoa(concurrency))
		var all []*process
		for i := range sends {
			url := []string{v.URL, other.URL}[i%2]
			all = append(all, run.start("send", "--id", fmt.Sprint("event/", i), "--url", url, "-d", "x"))
		}
		// All are ready to send, and as many as may do.
		until(t, "all have claimed", func() bool { return len(p.query("select event_id from {s}processed_events")) == sends })
		until(t, "the bound is reached", func() bool { now, _ := v.inFlight(); return now >= concurrency })
		close(rest)
		for _, pr := range all {
			pr.ends(0)
		}
		if n := v.eachOnce(t); n != sends {
			t.Errorf("%d requests came", n)
		}
		if _, most := v.inFlight(); most != concurrency {
			t.Errorf("%d were in flight at once", most)
		}
	})
}

func TestSend_WhenTheHostWantsSilence_OnlyItsSendersWait(t *testing.T) {
	t.Parallel()
	const silence = 4 * time.Second
	eachStore(t, func(t *testing.T, p *place) {
		busy := newReceiver(t, func(w http.ResponseWriter, r request) {
			if r.id == "first" && r.nth == 1 {
				w.Header().Set("Retry-After", strconv.Itoa(int(silence/time.Second)))
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		free := newReceiver(t, nil)
		run := p.inside("--concurrency", "8")
		all := []*process{run.start("send", "--id", "first", "--url", busy.URL, "-d", "x")}
		until(t, "the host has answered", func() bool { return len(busy.requests()) > 0 && !busy.requests()[0].ended.IsZero() })
		for i := range 7 {
			all = append(all, run.start("send", "--id", fmt.Sprint("event/", i), "--url", busy.URL, "-d", "x"))
		}
		// They go through while the others wait.
		for i := range 4 {
			run.start("send", "--id", fmt.Sprint("free/", i), "--url", free.URL, "-d", "x").ends(0)
		}
		for _, pr := range all {
			pr.ends(0)
		}
		told := busy.requests()[0].ended
		for _, r := range busy.requests()[1:] {
			if wait := r.began.Sub(told); wait < silence {
				t.Errorf("%q came %v after the host had asked for %v", r.id, wait, silence)
			}
		}
		if n := len(busy.requests()); n != 9 {
			t.Errorf("%d requests came", n)
		}
		for _, r := range free.requests() {
			if wait := r.began.Sub(told); wait >= silence {
				t.Errorf("%q to another host came after %v", r.id, wait)
			}
		}
	})
}
