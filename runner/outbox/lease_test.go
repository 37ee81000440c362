package outbox

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func TestDrain_WhenPublishingTakesLong_NobodyElseGetsTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		r.takes = 3 * time.Minute
		for range 10 {
			s.add("t", "k")
		}
		first := make(chan Result)
		go func() { res, _ := drain(s, r).Run(t.Context()); first <- res }()
		for range 20 {
			time.Sleep(time.Minute)
			mustRun(t, drain(s, newReceiver(ok)), Result{Ended: Empty})
		}
		if res := <-first; res.Sent != 10 || len(r.order) != 10 {
			t.Errorf("%+v with %d tries", res, len(r.order))
		}
	})
}

// A publisher that was suspended finds that its rows are another's: it marks
// nothing, and what followed in the key is not sent on its account.
func TestDrain_WhenItsLeaseWasLost_MarksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		r.takes = time.Second
		s.add("t", "k")
		s.add("t", "k")
		theirs := runner.NewToken()
		time.AfterFunc(500*time.Millisecond, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, row := range s.rows {
				row.token, row.until = theirs, time.Now().Add(time.Hour)
			}
		})
		mustRun(t, drain(s, r), Result{Lost: 1, Ended: Empty})
		if !slices.Equal(r.order, []int64{1}) || s.get(1).sent || s.get(1).token != theirs {
			t.Errorf("rows %v were tried; row 1: %+v", r.order, s.get(1))
		}
	})
}

func TestDrain_WhenALeaseIsLostBeforeItsTurn_TheRowIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		r.takes = 11 * time.Second
		for range 12 {
			s.add("t", "")
		}
		s.add("t", "k")
		s.add("t", "k")
		time.AfterFunc(time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, id := range []int64{9, 10, 13} {
				row := s.row(id)
				row.token, row.until = "theirs", time.Now().Add(time.Hour)
			}
		})
		res, err := drain(s, r).Run(t.Context())
		if err != nil || res.Sent != 10 || res.Lost != 0 {
			t.Fatalf("Run() = %+v, %v", res, err)
		}
		for _, id := range []int64{9, 10, 13, 14} {
			if len(r.tries[id]) != 0 {
				t.Errorf("row %d was tried", id)
			}
		}
		if s.get(14).token != "" {
			t.Error("row 14, behind 13 in its key, was not given back")
		}
	})
}

// While there is more behind it, the beginning is looked at each second.
func TestDrain_WhenARowIsCommittedLate_ItDoesNotWaitForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		s.add("t", "")
		for range 20000 { // 25 s
			s.add("t", "")
		}
		var late int64
		var at time.Duration
		time.AfterFunc(10*time.Second, func() { late, at = s.addLate(), time.Since(r.began) })
		mustRun(t, drain(s, r), Result{Sent: 20002, Ended: Empty})
		if wait := r.tries[late][0] - at; wait > 2*time.Second {
			t.Errorf("the late row waited for %v", wait)
		}
	})
}

func TestDrain_WhenItKeepsLooking_LatencyIsShortAndIdlenessCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		added := map[int64]time.Duration{}
		all := make(chan struct{})
		go func() {
			defer close(all)
			for range 100 { // 20 s
				time.Sleep(200*time.Millisecond + time.Microsecond)
				s.mu.Lock()
				at := time.Since(r.began)
				s.mu.Unlock()
				added[s.add("t", "")] = at
			}
		}()
		d := drain(s, r)
		d.For = 55 * time.Second
		mustRun(t, d, Result{Sent: 100, Ended: TimeOver})
		<-all
		var waits []time.Duration
		for id, tries := range r.tries {
			waits = append(waits, tries[0]-added[id])
		}
		if slices.Sort(waits); waits[50] > 150*time.Millisecond || waits[99] > 250*time.Millisecond {
			t.Errorf("from commit to request: median %v, longest %v", waits[50], waits[99])
		}
		idle := 0
		for _, at := range s.leases {
			if since := at.Sub(r.began); since > 35*time.Second {
				idle++
			}
		}
		if idle < 18 || idle > 21 {
			t.Errorf("%d looks in the last 20 idle seconds, want one a second", idle)
		}
		if took := time.Since(r.began); took != d.For {
			t.Errorf("it took %v, want %v", took, d.For)
		}
	})
}

func TestEase_WhenNothingComes_GrowsToASecond(t *testing.T) {
	last := time.Duration(0)
	for n := range 1000 {
		got := ease(n)
		if got < last || got < pollLeast || got > pollMost || n <= pollSteady && got != pollLeast {
			t.Fatalf("ease(%d) = %v after %v", n, got, last)
		}
		last = got
	}
	if last != pollMost {
		t.Errorf("in the end it is %v, want %v", last, pollMost)
	}
}
