package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// longAgo is beyond every age that the tests prune by.
const longAgo = "'2001-01-01T00:00:00.000Z'"

func testPrune(t *testing.T, h Harness) {
	t.Run("WhenTheAgeIsNotPositive_IsRefused", func(t *testing.T) {
		_, s := fresh(t, h)
		for _, age := range []time.Duration{0, -1, -time.Hour} {
			_, err := s.Prune(t.Context(), age)
			wantErr(t, fmt.Sprintf("Prune(%v)", age), err, runner.ErrInvalid)
		}
	})
	t.Run("Claims_KeepsWhatIsYoungUnfinishedOrInDoubt", func(t *testing.T) {
		p, s := fresh(t, h)
		for _, state := range []string{"bare", "unfinished", "expired", "delivered", "failed", "in_doubt"} {
			claimIn(t, p, s, "old "+state, state)
			claimIn(t, p, s, "new "+state, state)
		}
		claimIn(t, p, s, "old, done late", "delivered")
		exec(t, p, "update processed_events set claimed_at = "+longAgo+" where event_id like 'old%'")
		exec(t, p, "update processed_events set finished_at = "+longAgo+" where event_id like 'old %' and finished_at is not null")
		wantPruned(t, s, time.Hour, runner.Pruned{Claims: 3})
		wantRows(t, p, "select event_id from processed_events where event_id like 'old%' order by event_id", "old expired", "old in_doubt", "old unfinished", "old, done late")
		wantRows(t, p, "select count(*) from processed_events where event_id like 'new%'", "6")
	})
	t.Run("DeadLetters_KeepsThoseOfEventsInDoubt", func(t *testing.T) {
		p, s := fresh(t, h)
		letters := map[string]int64{}
		for _, e := range []string{"open", "doubt", "given back", "young"} {
			letters[e] = save(t, s, sendLetter(e)).ID
			if e != "open" {
				wantResolve(t, s, letters[e], "x", true)
			}
		}
		exec(t, p, "update failed_jobs set failed_at = "+longAgo)
		exec(t, p, "update failed_jobs set resolved_at = "+longAgo+" where resolved_at is not null and event_id <> 'young'")
		exec(t, p, "delete from processed_events where event_id = 'given back'")
		wantPruned(t, s, time.Hour, runner.Pruned{DeadLetters: 1})
		wantRows(t, p, "select event_id from failed_jobs order by event_id", "doubt", "open", "young")
	})
	t.Run("Outbox_DropsWhatWasSent", func(t *testing.T) {
		p, s := fresh(t, h)
		status(t, s)
		exec(t, p, `insert into outbox (topic, payload, sent_at, failed_at) values ('old', '1', `+longAgo+`, null),
			('unsent', '1', null, null), ('failed', '1', null, `+longAgo+`)`)
		exec(t, p, "insert into outbox (topic, payload, sent_at) select 'young', '1', started_at from (select max(applied_at) as started_at from schema_info) x")
		exec(t, p, "update outbox set created_at = "+longAgo)
		wantPruned(t, s, time.Hour, runner.Pruned{Outbox: 1})
		wantRows(t, p, "select topic from outbox order by topic", "failed", "unsent", "young")
	})
	t.Run("Runs_KeepsLastSuccessesAndKeys", func(t *testing.T) { testPruneRuns(t, h) })
	t.Run("WhenThereAreManyBatches", func(t *testing.T) {
		p, s := fresh(t, h)
		all := names("e", 2*runner.PruneBatch+7)
		if _, err := s.Claim(t.Context(), bare(all...)); err != nil {
			t.Fatal(err)
		}
		exec(t, p, "update processed_events set claimed_at = "+longAgo+" where event_id <> 'e5'")
		wantPruned(t, s, time.Hour, runner.Pruned{Claims: len(all) - 1})
		wantRows(t, p, "select event_id from processed_events", "e5")
	})
	t.Run("WhenOthersClaimMeanwhile_EachIdHasOneWinner", func(t *testing.T) { testPruneContended(t, h) })
}

func wantPruned(t *testing.T, s Store, age time.Duration, want runner.Pruned) {
	t.Helper()
	got, err := s.Prune(t.Context(), age)
	if err != nil || got != want {
		t.Fatalf("Prune(%v) = %+v, %v, want %+v", age, got, err, want)
	}
}

func testPruneRuns(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	var kept []string
	run := func(lock, key string, outcome runner.RunOutcome, keep bool) {
		r := oneRun(t, s, lock, key, outcome)
		if keep {
			kept = append(kept, fmt.Sprint(r.ID))
		}
	}
	run("a", "", runner.RunSucceeded, false)
	run("a", "", runner.RunSucceeded, true) // the last success
	run("a", "", runner.RunFailed, false)
	run("a", "once", runner.RunFailed, false)
	run("a", "", "", true)               // unfinished
	run("a", "", runner.RunFailed, true) // the latest
	run("b", "once", runner.RunSucceeded, true)
	run("b", "tick", runner.RunSucceeded, false)
	run("b", "tick 2", runner.RunSucceeded, true)
	exec(t, p, "update runs set scheduled_at = started_at where key like 'tick%'")
	exec(t, p, "update runs set finished_at = "+longAgo+" where finished_at is not null")
	run("b", "", runner.RunFailed, true) // young
	run("b", "", runner.RunFailed, true)
	wantPruned(t, s, time.Hour, runner.Pruned{Runs: 4})
	wantRows(t, p, "select id from runs order by id", kept...)
	held := mustLock(t, s, "b")
	_, err := held.Begin(t.Context(), beginRequest("once"))
	wantErr(t, "Begin with a key that succeeded before", err, runner.ErrDone)
}

// testPruneContended claims ids that are old, and may be won once more when they
// are pruned, and young ones, which may not be.
func testPruneContended(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	old, young := names("old", 1500), names("young", 200)
	if _, err := s.Claim(t.Context(), bare(slices.Concat(old, young)...)); err != nil {
		t.Fatal(err)
	}
	exec(t, p, "update processed_events set claimed_at = "+longAgo+" where event_id like 'old%'")
	var mu sync.Mutex
	winners := map[string]int{}
	contend(t, p, 5, func(i int, s Store) {
		if i == 0 {
			if _, err := s.Prune(t.Context(), time.Hour); err != nil {
				t.Errorf("Prune() = %v", err)
			}
			return
		}
		all := slices.Concat(old, young)
		for len(all) > 0 {
			n := min(100, len(all))
			req := bare(all[:n]...)
			won, err := s.Claim(t.Context(), req)
			if err != nil {
				t.Errorf("Claim() = %v", err)
				return
			}
			mu.Lock()
			for j, w := range won {
				if w {
					winners[all[j]]++
				}
			}
			mu.Unlock()
			all = all[n:]
		}
	})
	for id, n := range winners {
		if n != 1 || id[0] == 'y' {
			t.Errorf("%s was won %d times", id, n)
		}
	}
	wantRows(t, p, "select count(*) from processed_events where event_id like 'young%'", "200")
}
