package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func isBusy(err error) bool { return errors.Is(err, runner.ErrBusy) }

func testRun(t *testing.T, h Harness) {
	t.Run("WhenBegun_IsRecorded", func(t *testing.T) { testBegin(t, h) })
	t.Run("WhenTheTokenIsRepeated_IsTheSameRun", func(t *testing.T) { testBeginRepeated(t, h) })
	t.Run("WhenItsKeySucceeded_IsDone", func(t *testing.T) { testDone(t, h) })
	t.Run("WhenItHasNoKey_IsNeverDone", func(t *testing.T) {
		_, s := fresh(t, h)
		first := oneRun(t, s, "nightly", "", runner.RunSucceeded)
		if second := oneRun(t, s, "nightly", "", runner.RunSucceeded); second.ID == first.ID {
			t.Fatalf("two runs have the id %d", first.ID)
		}
	})
	t.Run("WhenItsKeyDidNotSucceed_RunsAgain", func(t *testing.T) {
		for _, outcome := range []runner.RunOutcome{"", runner.RunFailed, runner.RunTimedOut, runner.RunStopped, runner.RunLost} {
			_, s := fresh(t, h)
			oneRun(t, s, "nightly", "tick", outcome)
			oneRun(t, s, "nightly", "tick", runner.RunSucceeded)
		}
	})
	t.Run("WhenItsKeySucceedsMeanwhile_IsDoneAndWithdrawn", func(t *testing.T) {
		p, s := fresh(t, h)
		held := mustLock(t, s, "nightly")
		old := mustBegin(t, held, "tick").Run
		req := beginRequest("tick")
		run, err := held.Begin(t.Context(), req)
		wantErr(t, "Begin beside an unfinished run", err, nil)
		wantErr(t, "Finish of the run before", held.Finish(t.Context(), old, runner.RunEnd{Outcome: runner.RunSucceeded, Started: true}), nil)
		_, err = held.Begin(t.Context(), req)
		wantErr(t, "Begin repeated once the key has succeeded", err, runner.ErrDone)
		wantErr(t, "Finish of the skipped run", held.Finish(t.Context(), run.Run, runner.RunEnd{Outcome: runner.RunSkipped}), nil)
		wantErr(t, "Finish of the run before as skipped", held.Finish(t.Context(), old, runner.RunEnd{Outcome: runner.RunSkipped}), nil)
		wantRows(t, p, "select key, outcome from runs", "tick|succeeded")
	})
	t.Run("WhenAWaiterEnds_TheNextOwesTheWait", func(t *testing.T) { testOwedWait(t, h) })
	t.Run("WhenTheOneBeforeIsUnfinished_NamesIt", func(t *testing.T) { testPredecessor(t, h) })
	t.Run("WhenFinished_IsRecordedWithItsDeadLetter", func(t *testing.T) { testFinish(t, h) })
	t.Run("WhenFinishedTwice_StaysAsItWas", func(t *testing.T) { testFinishTwice(t, h) })
	t.Run("WhenFinishedAfterASuccessor_IsRecorded", func(t *testing.T) {
		p, s := fresh(t, h)
		held := mustLock(t, s, "nightly")
		old := mustBegin(t, held, "").Run
		mustRelease(t, held)
		next := mustLock(t, p.Open(t), "nightly")
		mustBegin(t, next, "")
		// Whoever lost its lock has no connection of its own for this any more.
		if err := next.Finish(t.Context(), old, runner.RunEnd{Outcome: runner.RunLost, ExitCode: 120}); err != nil {
			t.Fatalf("Finish of the old run = %v", err)
		}
		wantRows(t, p, "select outcome, exit_code from runs order by id", "lost|120", "-|-")
	})
}

func testBegin(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	at := time.Date(2024, 2, 29, 3, 30, 0, 0, time.UTC)
	req := beginRequest("2024-02-29T03:30:00Z")
	req.ScheduledAt = at
	b, err := held.Begin(t.Context(), req)
	if err != nil {
		t.Fatalf("Begin() = %v", err)
	}
	run := b.Run
	if run.ID <= 0 || run.Lock != lockID(t, "nightly") || run.Key != req.Key || run.Token != req.Token ||
		run.Host != here || run.PID != 4711 || !run.ScheduledAt.Equal(at) {
		t.Errorf("Begin() returned the run %+v for %+v", run, req)
	}
	if d := time.Since(run.StartedAt); d < -time.Second || d > time.Minute {
		t.Errorf("the run started at %v, but it is %v", run.StartedAt, time.Now())
	}
	if b.Predecessor != nil {
		t.Errorf("the first run has the predecessor %+v", b.Predecessor)
	}
	wantRows(t, p, "select lock, key, token, host, host_id, pid, finished_at, outcome, exit_code from runs",
		"nightly|"+req.Key+"|"+string(req.Token)+"|host-a|boot-1:pidns-1|4711|-|-|-")
	wantRows(t, p, "select count(*) from fences f join runs r on r.id = f.run_id and r.token = f.token and r.lock_key = f.lock_key", "1")
}

func testBeginRepeated(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	oneRun(t, s, "nightly", "", "") // unfinished: the predecessor of both answers
	held := mustLock(t, s, "nightly")
	req := beginRequest("tick")
	first, err := held.Begin(t.Context(), req)
	if err != nil {
		t.Fatalf("Begin() = %v", err)
	}
	second, err := held.Begin(t.Context(), req)
	if err != nil {
		t.Fatalf("Begin() repeated = %v", err)
	}
	if first.Run.ID != second.Run.ID {
		t.Errorf("the repeated request made run %d beside %d", second.Run.ID, first.Run.ID)
	}
	if first.Predecessor == nil || second.Predecessor == nil || first.Predecessor.ID != second.Predecessor.ID {
		t.Errorf("the repeated request names the predecessor %+v, the first %+v", second.Predecessor, first.Predecessor)
	}
	wantRows(t, p, "select count(*) from runs", "2")
	mustFinish(t, held, first.Run, runner.RunSucceeded)
	wantRows(t, p, "select outcome from runs where key = 'tick'", "succeeded")
}

func testDone(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	run := oneRun(t, s, "nightly", "tick", runner.RunSucceeded)
	other := p.Open(t)
	held := mustLock(t, other, "nightly")
	_, err := held.Begin(t.Context(), beginRequest("tick"))
	wantErr(t, "Begin of a key that succeeded", err, runner.ErrDone)
	wantRows(t, p, "select count(*) from runs", "1")
	if err := held.Resume(t.Context(), run); err != nil {
		t.Errorf("the refused run took the fence: Resume() = %v", err)
	}
	mustRelease(t, held)
	oneRun(t, other, "nightly", "next tick", runner.RunSucceeded)
	oneRun(t, other, "nightly", "TICK", runner.RunSucceeded)
	oneRun(t, other, "hourly", "tick", runner.RunSucceeded)

	// Runs of other keys in between do not make it forget.
	held = mustLock(t, s, "nightly")
	_, err = held.Begin(t.Context(), beginRequest("tick"))
	wantErr(t, "Begin of a key that succeeded earlier", err, runner.ErrDone)
}

// A run that waits for an unfinished one may be told to end, or be killed, before
// the wait is over: then whoever comes next owes the rest of it.
func testOwedWait(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	oneRun(t, s, "nightly", "", "") // crashed
	waiter := mustLock(t, p.Open(t), "nightly")
	b := mustBegin(t, waiter, "")
	if b.NoHandover {
		t.Log("nothing is to be waited for on this store")
		return
	}
	if b.Predecessor == nil || b.Wait != 0 {
		t.Fatalf("Begin() after a crash = %+v, want a predecessor and nothing owed", b)
	}
	mustFinish(t, waiter, b.Run, runner.RunFailed) // its job was never started
	mustRelease(t, waiter)

	next := mustLock(t, p.Open(t), "nightly")
	b = mustBegin(t, next, "")
	if b.Predecessor != nil || b.Wait <= 0 || b.Wait > runner.HandoverWait {
		t.Errorf("Begin() after a waiter that did not start its job = %+v, want some of %v", b, runner.HandoverWait)
	}
	if err := next.Finish(t.Context(), b.Run, runner.RunEnd{Outcome: runner.RunSucceeded, Started: true}); err != nil {
		t.Fatalf("Finish() = %v", err)
	}
	mustRelease(t, next)

	last := mustLock(t, p.Open(t), "nightly")
	if b = mustBegin(t, last, ""); b.Wait != 0 {
		t.Errorf("Begin() after a job that was started owes %v", b.Wait)
	}
}

func testPredecessor(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	crashed := oneRun(t, s, "nightly", "k1", "")
	oneRun(t, s, "hourly", "", "") // of another lock: nobody's predecessor here

	held := mustLock(t, p.Open(t), "nightly")
	b := mustBegin(t, held, "k2")
	if b.Predecessor == nil {
		t.Fatal("Begin() names no predecessor, though the run before was not finished")
	}
	got := *b.Predecessor
	if got.ID != crashed.ID || got.Token != crashed.Token || got.Host != here || got.PID != 4711 ||
		got.Key != "k1" || !got.StartedAt.Equal(crashed.StartedAt) {
		t.Errorf("Begin() names the predecessor %+v, want %+v", got, crashed)
	}
	mustFinish(t, held, b.Run, runner.RunFailed)
	mustRelease(t, held)

	// The latest one counts: what lies before a finished run is long over.
	held = mustLock(t, s, "nightly")
	if b := mustBegin(t, held, "k3"); b.Predecessor != nil {
		t.Errorf("Begin() names the predecessor %+v, though the latest run was finished", b.Predecessor)
	}
}

func testFinish(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	run := mustBegin(t, held, "").Run
	letter := &runner.DeadLetter{
		Kind: runner.KindRun, Name: "nightly", PayloadHash: runner.HashCommand([]string{"false"}),
		Request: []byte(`{"argv": ["false"]}`), LastError: "the command ended with exit status 3; stderr ends:\nöh 'no'\n",
		Attempts: 1, Certainty: runner.Failed,
	}
	end := runner.RunEnd{Outcome: runner.RunFailed, ExitCode: 3, DeadLetter: letter}
	if err := held.Finish(t.Context(), run, end); err != nil {
		t.Fatalf("Finish() = %v", err)
	}
	wantRows(t, p, "select outcome, exit_code, finished_at is not null and finished_at >= started_at from runs",
		"failed|3|"+truth(t, p))
	wantRows(t, p, "select kind, name, event_id, payload_hash, payload, last_error, attempts, certainty, retry_at, resolved_at from failed_jobs",
		"run|nightly|-|"+letter.PayloadHash+"|-|"+letter.LastError+"|1|failed|-|-")
	wantRows(t, p, "select count(*) from failed_jobs where request is not null and failed_at is not null", "1")
}

// truth is how the store's dialect shows a true condition.
func truth(t *testing.T, p Place) string { return rows(t, p, "select 1 = 1")[0] }

func testFinishTwice(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	run := mustBegin(t, held, "").Run
	letter := &runner.DeadLetter{Kind: runner.KindRun, Name: "nightly", LastError: "x", Attempts: 1, Certainty: runner.Failed}
	for _, end := range []runner.RunEnd{
		{Outcome: runner.RunFailed, ExitCode: 3, DeadLetter: letter},
		{Outcome: runner.RunFailed, ExitCode: 3, DeadLetter: letter},
		{Outcome: runner.RunSucceeded},
	} {
		if err := held.Finish(t.Context(), run, end); err != nil {
			t.Fatalf("Finish(%+v) = %v", end, err)
		}
	}
	wantRows(t, p, "select outcome, exit_code from runs", "failed|3")
	wantRows(t, p, "select count(*) from failed_jobs", "1")
}
