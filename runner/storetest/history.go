package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testHistory(t *testing.T, h Harness) {
	t.Run("WhenTheStoreIsNew_IsEmpty", func(t *testing.T) {
		_, s := fresh(t, h)
		got := status(t, s)
		if len(got.Locks)+len(got.Letters)+got.InDoubt+got.Expired+got.Unfinished+got.Outbox.Count != 0 {
			t.Errorf("Status() of nothing = %+v", got)
		}
		if d := time.Since(got.At); d < -time.Minute || d > time.Minute {
			t.Errorf("the store's clock shows %v", got.At)
		}
		wantRuns(t, s, runner.RunFilter{})
	})
	t.Run("Locks_ShowWhoHoldsThem", func(t *testing.T) { testLockStates(t, h) })
	t.Run("Runs_LatestFirst", func(t *testing.T) { testRuns(t, h) })
	t.Run("Counts", func(t *testing.T) { testCounts(t, h) })
	t.Run("Doubt_WhenAPersonResolvedIt_IsClosed", func(t *testing.T) {
		_, s := fresh(t, h)
		letter := save(t, s, sendLetter("a"))
		wantDoubt(t, s, 1, 1)
		wantResolve(t, s, letter.ID, "asked them", true)
		wantDoubt(t, s, 1, 0)
		save(t, s, sendLetter("b"))
		wantDoubt(t, s, 2, 1)
	})
	t.Run("WhenTheTablesAreForNewerBinaries_IsRefused", func(t *testing.T) {
		p, s := fresh(t, h)
		status(t, s)
		exec(t, p, "update schema_info set version = 999, oldest_binary = 999")
		_, err := s.Status(t.Context())
		wantErr(t, "Status", err, runner.ErrRefused)
		wantErr(t, "EachRun", s.EachRun(t.Context(), runner.RunFilter{}, nil), runner.ErrRefused)
		_, err = s.Prune(t.Context(), time.Hour)
		wantErr(t, "Prune", err, runner.ErrRefused)
	})
}

func status(t *testing.T, s Store) runner.Status {
	t.Helper()
	st, err := s.Status(t.Context())
	if err != nil {
		t.Fatalf("Status() = %v", err)
	}
	return st
}

func wantDoubt(t *testing.T, s Store, all, open int) {
	t.Helper()
	if st := status(t, s); st.InDoubt != all || st.InDoubtOpen != open {
		t.Errorf("%d events are in doubt, %d of them open; want %d and %d", st.InDoubt, st.InDoubtOpen, all, open)
	}
}

func testLockStates(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	oneRun(t, s, "b", "", runner.RunSucceeded)
	oneRun(t, s, "b", "", runner.RunFailed)
	oneRun(t, s, "crashed", "", "")
	held := mustLock(t, s, "a")
	run := mustBegin(t, held, "").Run
	idle := mustLock(t, s, "b") // holds it, and records no run
	_ = idle

	locks := status(t, p.Open(t)).Locks
	if len(locks) != 3 {
		t.Fatalf("there are the locks %+v, want a, b and crashed", locks)
	}
	a, b, c := locks[0], locks[1], locks[2]
	if a.Lock != lockID(t, "a") || !a.Held || a.Holder != "host-a/4711" || !a.Since.Equal(run.StartedAt) || !a.LastSuccess.IsZero() ||
		a.Last.ID != run.ID || a.Last.Outcome != runner.RunRunning || a.Last.Took < 0 {
		t.Errorf("the running lock shows as %+v", a)
	}
	if b.Lock.Name != "b" || !b.Held || b.Holder == "" || !b.Since.IsZero() || b.Last.Outcome != runner.RunFailed || b.Last.ExitCode != 1 || b.LastSuccess.IsZero() ||
		b.LastSuccess.After(b.Last.FinishedAt) {
		t.Errorf("the lock that is held without a run shows as %+v", b)
	}
	if c.Lock.Name != "crashed" || c.Held || c.Holder != "" || c.Last.Outcome != runner.RunUnknown || c.Last.Took != 0 {
		t.Errorf("the lock whose run crashed shows as %+v", c)
	}
	mustFinish(t, held, run, runner.RunSucceeded)
	mustRelease(t, held)
	a = status(t, s).Locks[0]
	if a.Held || a.Holder != "" || a.Last.Outcome != runner.RunSucceeded || !a.LastSuccess.Equal(a.Last.FinishedAt) {
		t.Errorf("the lock that was released shows as %+v", a)
	}
}

func testRuns(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	oneRun(t, s, "a", "", runner.RunSucceeded)
	oneRun(t, s, "b", "key", runner.RunFailed)
	oneRun(t, s, "a", "", "")
	oneRun(t, s, "a", "", runner.RunTimedOut) // so the one before is over, whoever has the lock
	held := mustLock(t, s, "a")
	mustBegin(t, held, "")
	exec(t, p, "update runs set started_at = '2001-01-01T00:00:00.000Z', finished_at = '2001-01-01T00:01:30.250Z' where outcome = 'succeeded'")

	wantRuns(t, s, runner.RunFilter{}, "a running", "a timed_out", "a unknown", "b failed", "a succeeded")
	wantRuns(t, s, runner.RunFilter{Limit: 2}, "a running", "a timed_out")
	wantRuns(t, s, runner.RunFilter{Lock: "b"}, "b failed")
	wantRuns(t, s, runner.RunFilter{Outcome: runner.RunSucceeded}, "a succeeded")
	wantRuns(t, s, runner.RunFilter{Outcome: runner.RunUnknown, Limit: 1}, "a unknown")
	wantRuns(t, s, runner.RunFilter{Outcome: runner.RunRunning}, "a running")
	wantRuns(t, s, runner.RunFilter{Since: time.Hour, Lock: "a"}, "a running", "a timed_out", "a unknown")
	wantRuns(t, s, runner.RunFilter{Lock: "b' or true --"})
	err := s.EachRun(t.Context(), runner.RunFilter{Outcome: runner.RunSucceeded}, func(r runner.PastRun) error {
		if r.Took != 90250*time.Millisecond || r.Host != here.Name || r.PID != 4711 || r.Lock != lockID(t, "a") {
			t.Errorf("the first run reads as %+v", r)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	enough, n := errors.New("enough"), 0
	err = s.EachRun(t.Context(), runner.RunFilter{}, func(runner.PastRun) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 {
		t.Errorf("EachRun() = %v after %d calls, want the callback's error after one", err, n)
	}
}

func wantRuns(t *testing.T, s Store, f runner.RunFilter, want ...string) {
	t.Helper()
	var got []string
	err := s.EachRun(t.Context(), f, func(r runner.PastRun) error {
		got = append(got, r.Lock.Name+" "+string(r.Outcome))
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("EachRun(%+v) showed %q, %v, want %q", f, got, err, want)
	}
}

func testCounts(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	for _, state := range []string{"bare", "unfinished", "expired", "delivered", "failed", "in_doubt"} {
		claimIn(t, p, s, state, state)
	}
	claimAll(t, s, sending("send"))
	expire(t, p, "send")
	save(t, s, sendLetter("x"))
	for i := range 3 {
		letter := runner.DeadLetter{Kind: runner.KindClaim, Name: "n", EventID: "y", LastError: "x", Attempts: 1, Certainty: runner.Failed}
		letter.EventID = runner.EventID(fmt.Sprint("y", i))
		save(t, s, &letter)
	}
	exec(t, p, `insert into outbox (topic, payload, created_at, sent_at, failed_at) values
		('t', '1', '2001-01-02T00:00:00.000Z', null, null), ('t', '1', '2001-01-01T00:00:00.000Z', null, null),
		('t', '1', '2000-01-01T00:00:00.000Z', '2000-01-01T00:00:01.000Z', null),
		('t', '1', '2000-01-01T00:00:00.000Z', null, '2000-01-01T00:00:01.000Z')`)
	st := status(t, s)
	if st.Expired != 2 || st.ExpiredSends != 1 || st.Unfinished != 1 || st.InDoubt != 4 || st.InDoubtOpen != 4 {
		t.Errorf("claims are counted as %+v", st)
	}
	if st.Outbox.Count != 2 || !st.Outbox.Oldest.Equal(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the outbox's backlog is %+v", st.Outbox)
	}
	var letters []string
	for _, l := range st.Letters {
		letters = append(letters, fmt.Sprint(l.Kind, " ", l.Certainty, " ", l.Count))
		if d := time.Since(l.Oldest); d < -time.Minute || d > time.Minute {
			t.Errorf("the oldest of %s failed at %v", l.Kind, l.Oldest)
		}
	}
	if want := []string{"claim failed 3", "send in_doubt 1"}; !slices.Equal(letters, want) {
		t.Errorf("dead letters are counted as %q, want %q", letters, want)
	}
	// Nothing was written: the next sweep still finds the dead sender.
	if n, err := s.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("Sweep() = %d, %v, want 1", n, err)
	}
}
