package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func TestDrain_WhenSeveralRun_EachRowOnceAndEachKeyInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		for i := range 2000 {
			s.add("t", fmt.Sprint("key ", i*7%50))
		}
		results := make([]Result, 4)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { results[i], _ = drain(s, r).Run(t.Context()) })
		}
		wg.Wait()
		sum := 0
		for _, res := range results {
			sum += res.Sent
		}
		if sum != 2000 || len(r.order) != 2000 {
			t.Errorf("%d rows were sent by %d tries, want 2000", sum, len(r.order))
		}
		if r.overlap {
			t.Error("two rows of one key were in flight at once")
		}
		last := map[string]int64{}
		for _, id := range r.order {
			row := s.get(id)
			if id < last[row.Key] {
				t.Fatalf("row %d of key %q came behind row %d", id, row.Key, last[row.Key])
			}
			last[row.Key] = id
		}
		if r.most > 16 {
			t.Errorf("%d were in flight at once, want 4 for each of 4", r.most)
		}
	})
}

// Whoever is killed leaves at most Concurrency rows that were published and not
// marked: a row's place is free when it is marked, not when it is answered.
func TestDrain_WhenMarksAreSlow_NoMoreThanConcurrencyAreUnmarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(ok)
		s := &slowMarks{fakeStore: &fakeStore{}, receiver: r}
		for range 200 {
			s.add("t", "")
		}
		d := drain(s.fakeStore, r)
		d.Store = s
		mustRun(t, d, Result{Sent: 200, Ended: Empty})
		if s.most > d.Concurrency {
			t.Errorf("%d rows were published and not marked", s.most)
		}
	})
}

type slowMarks struct {
	*fakeStore
	receiver *receiver
	marked   int
	most     int
}

func (s *slowMarks) Mark(ctx context.Context, token runner.Token, marks []runner.OutboxMark) ([]bool, error) {
	time.Sleep(20 * time.Millisecond)
	s.receiver.mu.Lock()
	s.most = max(s.most, len(s.receiver.order)-s.marked)
	s.marked += len(marks)
	s.receiver.mu.Unlock()
	return s.fakeStore.Mark(ctx, token, marks)
}

func TestDrain_WhenPoisonIsAhead_TheRestGoesOutInTheSameRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		poison := func(row runner.OutboxRow) bool { return row.Topic == "poison" }
		s, r := &fakeStore{}, newReceiver(func(row runner.OutboxRow, try int) runner.DeliveryResult {
			switch {
			case !poison(row):
				return delivered()
			case try == 1:
				return status(503, runner.InDoubt)
			}
			return status(400, runner.Failed)
		})
		for range 100 {
			s.add("poison", "")
		}
		for range 100 {
			s.add("good", "")
		}
		mustRun(t, drain(s, r), Result{Sent: 100, Failed: 100, Tries: 500, Ended: Empty})
		for id := int64(1); id <= 200; id++ {
			row := s.get(id)
			tries := r.tries[id]
			if !poison(row.OutboxRow) {
				if !row.sent || tries[0] > time.Second {
					t.Fatalf("the good row %d went out at %v", id, tries)
				}
				continue
			}
			if !row.failed || len(tries) != 6 || row.letter.Attempts != 6 || row.letter.Certainty != runner.InDoubt {
				t.Fatalf("the bad row %d: %d tries, dead letter %+v", id, len(tries), row.letter)
			}
			for i, wait := range []time.Duration{1, 2, 4, 8, 16} {
				if got := tries[i+1] - tries[i]; got < wait*time.Second || got > wait*time.Second+500*time.Millisecond {
					t.Fatalf("row %d was tried at %v, want waits of 1, 2, 4, 8 and 16 s", id, tries)
				}
			}
		}
	})
}

func TestDrain_WhenARowFails_OnlyItsKeyWaits(t *testing.T) {
	for _, skip := range []bool{false, true} {
		t.Run(fmt.Sprint("skip ", skip), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := &fakeStore{}, newReceiver(func(row runner.OutboxRow, _ int) runner.DeliveryResult {
					if row.ID == 1 {
						return status(500, runner.InDoubt)
					}
					return delivered()
				})
				s.add("t", "a") // 1, which fails
				s.add("t", "a")
				s.add("t", "b")
				s.add("t", "b")
				d := drain(s, r)
				d.SkipFailed = skip
				if !skip {
					mustRun(t, d, Result{Sent: 2, Failed: 1, Tries: 5, Ended: Empty})
					if len(r.tries[2]) != 0 || s.get(2).token != "" {
						t.Errorf("row 2 was tried at %v, leased by %q", r.tries[2], s.get(2).token)
					}
					return
				}
				mustRun(t, d, Result{Sent: 3, Failed: 1, Tries: 5, Ended: Empty})
				if first := r.tries[2][0]; first < 31*time.Second {
					t.Errorf("row 2 went out after %v, before row 1 had failed", first)
				}
			})
		})
	}
}

func TestDrain_WhenTheReceiverIsAway_NoRowLosesATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := false
		s, r := &fakeStore{}, newReceiver(func(runner.OutboxRow, int) runner.DeliveryResult {
			if back {
				return delivered()
			}
			return unsent()
		})
		for range 50 {
			s.add("t", "k")
			s.add("t", "")
		}
		mustRun(t, drain(s, r), Result{Ended: Unreachable, Away: true})
		if n := len(r.order); n > 6*4 {
			t.Errorf("%d tries, want at most 4 in each of 6 rounds", n)
		}
		for _, row := range s.rows {
			if row.Attempts != 0 || row.token != "" || row.failed {
				t.Fatalf("row %d: %+v", row.ID, row)
			}
		}
		// It comes back while a run is waiting.
		time.AfterFunc(10*time.Second, func() { r.mu.Lock(); back = true; r.mu.Unlock() })
		mustRun(t, drain(s, r), Result{Sent: 100, Ended: Empty})
		if last := r.tries[r.order[len(r.order)-1]]; last[len(last)-1] > 2*time.Minute {
			t.Errorf("the last went out after %v", last)
		}
		if r.overlap {
			t.Error("two rows of one key were in flight at once")
		}
	})
}

func TestDrain_WhenTheReceiverWantsSilence_NothingIsSentBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(20 * time.Second)
		s, r := &fakeStore{}, newReceiver(func(_ runner.OutboxRow, try int) runner.DeliveryResult {
			if try == 1 {
				res := status(503, runner.InDoubt)
				res.RetryAt = until
				return res
			}
			return delivered()
		})
		s.add("t", "")
		mustRun(t, drain(s, r), Result{Sent: 1, Tries: 1, Ended: Empty})
		if got := r.tries[1][1]; got < 20*time.Second || got > 21*time.Second {
			t.Errorf("tried again after %v, want 20 s", got)
		}
	})
}

// A refusal for lack of pace is no fault of the row while others are taken.
func TestDrain_WhenRefusedWhileOthersAreTaken_TheTryIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(func(row runner.OutboxRow, try int) runner.DeliveryResult {
			if row.ID == 1 && try <= 20 {
				res := status(429, runner.Failed)
				res.RetryAt = time.Now().Add(10 * time.Millisecond)
				return res
			}
			return delivered()
		})
		for range 5000 {
			s.add("t", "")
		}
		mustRun(t, drain(s, r), Result{Sent: 5000, Tries: 20, Ended: Empty})
	})
}

func TestDrain_WhenInterrupted_FinishesWhatIsInFlightAndGivesBackTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		r.takes = 10 * time.Second
		for i := range 40 {
			s.add("t", []string{"", "k"}[i%2])
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(15*time.Second, cancel)
		got, err := drain(s, r).Run(ctx)
		if want := (Result{Sent: 8, Ended: Interrupted}); err != nil || got != want {
			t.Fatalf("Run() = %+v, %v, want %+v", got, err, want)
		}
		for _, row := range s.rows {
			if row.token != "" || row.sent != (len(r.tries[row.ID]) == 1) || row.Attempts > 1 {
				t.Fatalf("row %d: %+v, tries %v", row.ID, row, r.tries[row.ID])
			}
		}
	})
}

func TestDrain_WhenTheStoreFails_EndsWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		r.takes = 10 * time.Second
		for range 40 {
			s.add("t", "k")
			s.add("t", "")
		}
		time.AfterFunc(15*time.Second, func() { s.mu.Lock(); s.fail = runner.ErrUnavailable; s.mu.Unlock() })
		got, err := drain(s, r).Run(t.Context())
		if !errors.Is(err, runner.ErrUnavailable) || got.Ended != StoreFailed || got.Sent != 4 || got.Lost != 4 {
			t.Fatalf("Run() = %+v, %v", got, err)
		}
		if r.inFlight != 0 {
			t.Error("it did not wait for what was in flight")
		}
	})
}

func TestDrain_WhenThereIsALimit_PublishesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &fakeStore{}, newReceiver(ok)
		for i := range 60 {
			s.add("t", fmt.Sprint(i%3))
		}
		d := drain(s, r)
		d.Limit = 7
		began := time.Now()
		mustRun(t, d, Result{Sent: 7, Ended: BatchLimit})
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if len(r.order) != 7 || slices.ContainsFunc(s.rows, func(r *fakeRow) bool { return !r.sent && r.token != "" }) {
			t.Errorf("%d went out, or some are still leased", len(r.order))
		}
		mustRun(t, drain(s, r), Result{Sent: 53, Ended: Empty})
	})
}
