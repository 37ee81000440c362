package pgstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

func TestLoss_WhenNobodyRanInBetween_TheRunGoesOnUnderANewLock(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		s := open(t, via, schema)
		h := take(t, s)
		run := beginRunOf(t, h)
		wantWon(t, h, claimOf(&run, "before"), true)
		terminate(t, direct, schema)
		wantLost(t, h, soon)
		wantErr(t, "Regain of a lock whose connection is gone", h.Regain(t.Context()), runner.ErrLockLost)
		again := takeOnceFree(t, s, soon)
		if err := again.Resume(t.Context(), run); err != nil {
			t.Fatalf("Resume() = %v", err)
		}
		wantWon(t, again, claimOf(&run, "after"), true)
		if err := again.Finish(t.Context(), run, runner.RunEnd{Outcome: runner.RunSucceeded}); err != nil {
			t.Fatalf("Finish() = %v", err)
		}
	})
}

func TestLoss_WhenARivalRan_TheRunIsFenced(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		s := open(t, via, schema)
		h := take(t, s)
		run := beginRunOf(t, h)
		terminate(t, direct, schema)
		rival := takeOnceFree(t, open(t, via, schema), soon)
		beginRunOf(t, rival)
		wantLost(t, h, soon)
		// The lost lock itself can tell, so that nobody waits for a busy one.
		wantErr(t, "Resume by the lost lock", h.Resume(t.Context(), run), runner.ErrFenced)
		if err := rival.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := takeOnceFree(t, s, soon)
		wantErr(t, "Resume by a new lock", again.Resume(t.Context(), run), runner.ErrFenced)
		// How it ended can still be written down.
		end := runner.RunEnd{Outcome: runner.RunLost, ExitCode: 120}
		if err := h.Finish(t.Context(), run, end); err != nil {
			t.Fatalf("Finish() by the lost lock = %v", err)
		}
		got := pgtest.Query(t, direct, fmt.Sprintf("select outcome from %s.runs where id = %d", schema, run.ID))
		if len(got) != 1 || got[0] != "lost" {
			t.Errorf("the run's outcome is %q", got)
		}
	})
}

// claimWithout claims through c until it fails, and counts what was won.
func claimWithout(t *testing.T, c runner.Claimer, run runner.Run, started chan<- struct{}) (won *atomic.Int64, ended <-chan error) {
	won = new(atomic.Int64)
	end := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			got, err := c.Claim(t.Context(), claimOf(&run, fmt.Sprint("race/", i)))
			if err != nil {
				end <- err
				return
			}
			if got[0] && won.Add(1) == 20 {
				close(started)
			}
		}
	}()
	return won, end
}

// The old holder claims as fast as it can, by its own lock, while that lock is
// taken from it and a rival begins. Nothing of it commits once Begin is over.
func TestLoss_WhenARivalBegins_NoClaimOfTheOldHolderCommits(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		h := take(t, open(t, via, schema))
		run := beginRunOf(t, h)
		started := make(chan struct{})
		won, ended := claimWithout(t, h, run, started)
		select {
		case <-started:
		case err := <-ended:
			t.Fatalf("Claim() by the holder = %v", err)
		}
		terminate(t, direct, schema)
		rival := takeOnceFree(t, open(t, via, schema), soon)
		next := beginRunOf(t, rival)
		count := fmt.Sprintf("select count(*)::text from %s.processed_events where run_id = %d", schema, run.ID)
		atBegin := pgtest.Query(t, direct, count)[0]
		err := <-ended
		if !errors.Is(err, runner.ErrFenced) && !errors.Is(err, runner.ErrLockLost) {
			t.Errorf("the old holder's claims ended with %v, want ErrFenced or ErrLockLost", err)
		}
		n := pgtest.Query(t, direct, count)[0]
		if n != atBegin {
			t.Errorf("%s claims of the old run are there, %s were when its successor had begun", n, atBegin)
		}
		// What is refused is not written; an answer that was lost may be either.
		if wrote := fmt.Sprint(won.Load()); errors.Is(err, runner.ErrFenced) && n != wrote {
			t.Errorf("%s claims of the old run are there, %s were won", n, wrote)
		}
		wantWon(t, rival, claimOf(&next, "next"), true)
	})
}

// A claim that was sent before the rival's Begin and is still on its way must
// make Begin wait, or fail; it must not come in behind it.
func TestLoss_WhenAClaimIsOnItsWay_TheRivalWaitsForIt(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct, schema := pgtest.Schema(t)
			via := pgtest.Bouncer(t, direct, mode)
			h := take(t, open(t, via, schema))
			run := beginRunOf(t, h)
			letGo := hold(t, direct, schema, "slow")
			ended := make(chan error, 1)
			go func() {
				won, err := h.Claim(t.Context(), claimOf(&run, "slow"))
				if err == nil && !won[0] {
					err = errors.New("not won")
				}
				ended <- err
			}()
			waiting := func() bool {
				return len(pgtest.Query(t, direct, fmt.Sprintf(
					"select 1::text from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'oncectl %s'", schema))) == 1
			}
			until(t, "the claim waits for the application", soon, waiting)
			terminate(t, direct, schema)
			rival := takeOnceFree(t, open(t, via, schema), soon)
			begun := make(chan error, 1)
			go func() {
				_, err := rival.Begin(t.Context(), beginRequest())
				begun <- err
			}()
			until(t, "Begin waits for the claim", soon, func() bool {
				select {
				case err := <-begun:
					t.Fatalf("Begin() = %v while a claim of the old run is on its way", err)
				default:
				}
				return len(pgtest.Query(t, direct, fmt.Sprintf(
					"select 1::text from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'oncectl %s'", schema))) == 2
			})
			letGo()
			if err := <-ended; err != nil {
				t.Errorf("the claim that was first = %v", err)
			}
			if err := <-begun; err != nil {
				t.Errorf("Begin() = %v", err)
			}
			_, err := h.Claim(t.Context(), claimOf(&run, "late"))
			wantErr(t, "a claim behind Begin", err, runner.ErrFenced)
		})
	}
}
