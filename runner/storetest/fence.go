package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func testResume(t *testing.T, h Harness) {
	t.Run("WhenNobodyRanInBetween_GoesOn", func(t *testing.T) {
		p, s := fresh(t, h)
		held := mustLock(t, s, "nightly")
		run := mustBegin(t, held, "").Run
		mustRelease(t, held)
		again := mustLock(t, p.Open(t), "nightly")
		if err := again.Resume(t.Context(), run); err != nil {
			t.Fatalf("Resume() = %v", err)
		}
		wantClaim(t, again, inRun(run, "a"), true)
		mustFinish(t, again, run, runner.RunSucceeded)
	})
	t.Run("WhenAnotherRanInBetween_IsFenced", func(t *testing.T) {
		_, s := fresh(t, h)
		run := oneRun(t, s, "nightly", "", "")
		oneRun(t, s, "nightly", "", runner.RunSucceeded)
		held := mustLock(t, s, "nightly")
		wantErr(t, "Resume() after another run", held.Resume(t.Context(), run), runner.ErrFenced)
	})
	t.Run("WhenOnlyAnotherLockRan_GoesOn", func(t *testing.T) {
		_, s := fresh(t, h)
		run := oneRun(t, s, "nightly", "", "")
		oneRun(t, s, "hourly", "", runner.RunSucceeded)
		if err := mustLock(t, s, "nightly").Resume(t.Context(), run); err != nil {
			t.Fatalf("Resume() = %v", err)
		}
	})
}

// inRun is a bare claim by run.
func inRun(run runner.Run, names ...string) runner.ClaimRequest {
	req := bare(names...)
	req.Run = &run
	return req
}

func testFence(t *testing.T, h Harness) {
	t.Run("WhenTheRunHasTheFence_ClaimsByTheLockAndByTheStore", func(t *testing.T) {
		p, s := fresh(t, h)
		held := mustLock(t, s, "nightly")
		run := mustBegin(t, held, "").Run
		wantClaim(t, held, inRun(run, "a", "b"), true, true)
		wantClaim(t, s, inRun(run, "b", "c"), false, true)
		wantClaim(t, p.Open(t), inRun(run, "c", "d"), false, true)
		for _, id := range []string{"a", "b", "c", "d"} {
			if got := wantLookup(t, s, id).RunID; got != run.ID {
				t.Errorf("the claim of %q has run %d, want %d", id, got, run.ID)
			}
		}
		wantSettle(t, held, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "a", "c"), Run: &run}, runner.Settled, runner.Settled)
		got, err := held.GiveBack(t.Context(), runner.GiveBackRequest{IDs: ids("b"), Run: &run})
		if err != nil || fmt.Sprint(got) != fmt.Sprint([]runner.SettleAnswer{runner.Settled}) {
			t.Errorf("GiveBack() = %v, %v", got, err)
		}
	})
	t.Run("WhenAnotherRunHasIt_NothingIsWritten", func(t *testing.T) { testFenced(t, h) })
	t.Run("WhenTheRunIdIsRepeatedWithAnotherToken_NothingIsWritten", func(t *testing.T) {
		// A standby that lagged when it was promoted hands out run ids again.
		_, s := fresh(t, h)
		run := oneRun(t, s, "nightly", "", "")
		run.Token = runner.NewToken()
		_, err := s.Claim(t.Context(), inRun(run, "a"))
		wantErr(t, "Claim with a foreign token", err, runner.ErrFenced)
		wantNoClaim(t, s, "a")
	})
	t.Run("WhenNoRunEverBegan_NothingIsWritten", func(t *testing.T) {
		_, s := fresh(t, h)
		run := runner.Run{ID: 1, Lock: lockID(t, "nightly"), Token: runner.NewToken()}
		_, err := s.Claim(t.Context(), inRun(run, "a"))
		wantErr(t, "Claim by a run that nobody knows", err, runner.ErrFenced)
		wantNoClaim(t, s, "a")
	})
	t.Run("WhenASuccessorBegins_NoClaimCommitsAfterwards", func(t *testing.T) { testFenceRace(t, h) })
}

func testFenced(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	old := mustBegin(t, held, "").Run
	req := inRun(old, "held")
	req.Expires = longExpiry
	wantClaim(t, held, req, true)
	mustRelease(t, held)
	other := p.Open(t)
	next := mustBegin(t, mustLock(t, other, "nightly"), "").Run

	claim := func(c runner.Claimer) error {
		_, err := c.Claim(t.Context(), inRun(old, "a", "b"))
		return err
	}
	wantErr(t, "Claim by an old run", claim(s), runner.ErrFenced)
	wantErr(t, "Claim by an old run through another handle", claim(other), runner.ErrFenced)
	wantNoClaim(t, s, "a", "b")
	// An id that is taken does not hide that the run is over.
	wantClaim(t, s, bare("a", "b"), true, true)
	wantErr(t, "Claim by an old run of claimed ids", claim(s), runner.ErrFenced)

	_, err := s.Settle(t.Context(), runner.SettleRequest{Settlements: settleAll(runner.Delivered, "held"), Run: &old})
	wantErr(t, "Settle by an old run", err, runner.ErrFenced)
	_, err = s.GiveBack(t.Context(), runner.GiveBackRequest{IDs: ids("held"), Run: &old})
	wantErr(t, "GiveBack by an old run", err, runner.ErrFenced)
	wantState(t, s, "held", "unfinished")
	wantClaim(t, s, inRun(next, "c"), true)
}

// testFenceRace: one claims for the old run as fast as it can while the new
// one begins. From the moment Begin has returned, no claim of the old commits.
func testFenceRace(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	old := oneRun(t, s, "nightly", "", "")
	claimer, successor := p.Open(t), p.Open(t)
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			if i == 20 {
				close(started)
			}
			if _, err := claimer.Claim(t.Context(), inRun(old, fmt.Sprintf("id-%d", i))); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("Claim() by the owner of the fence = %v", err)
	}
	next := mustBegin(t, mustLock(t, successor, "nightly"), "").Run
	query := fmt.Sprintf("select count(*) from processed_events where run_id = %d", old.ID)
	atBegin := rows(t, p, query)[0]
	err := <-ended
	if !errors.Is(err, runner.ErrFenced) {
		t.Fatalf("the old run's claims ended with %v, want ErrFenced", err)
	}
	wantRows(t, p, query, atBegin)
	wantClaim(t, successor, inRun(next, "next"), true)
}
