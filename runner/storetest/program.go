package storetest

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// testProgram: an application that claims by a statement of its own, as those
// that were there before oncectl do.
func testProgram(t *testing.T, h Harness) {
	t.Run("WhenItAndOncectlClaimAtOnce_EachIdHasOneWinner", func(t *testing.T) { testProgramContends(t, h) })
	t.Run("WhenItRollsBack_TheIdIsFree", func(t *testing.T) { testProgramOpen(t, h, "rollback", true) })
	t.Run("WhenItCommits_TheIdIsItsOwn", func(t *testing.T) { testProgramOpen(t, h, "commit", false) })
	t.Run("WhenItClaimed_NoSenderAdoptsIt", func(t *testing.T) {
		p, s := fresh(t, h)
		if _, err := s.ApplySchema(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, p, programClaim("'a'"))
		held := mustLock(t, s, "nightly")
		run := mustBegin(t, held, "").Run
		req := sending("a")
		req.Take, req.Run = runner.TakeExpired|runner.TakeFailed|runner.TakeInDoubt|runner.TakeBareOfRun, &run
		wantClaim(t, held, req, false)
		wantSweep(t, s, 0)
		wantState(t, s, "a", "claimed")
		// A person may say that it is done, a run may not.
		wantSettle(t, held, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "a"), Run: &run}, runner.NotOwner)
		wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "a")}, runner.Settled)
		exec(t, p, programClaim("'a'"))
		wantState(t, s, "a", "delivered")
	})
}

// programClaim is the statement in the form that both dialects take.
func programClaim(id string) string {
	return "insert into processed_events (event_id, claimed_at) values (" + id + ", current_timestamp) on conflict (event_id) do nothing"
}

// testProgramContends: the program knows by the number of rows whether it won.
func testProgramContends(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	const n = 40
	all, db := names("e", n), p.DB(t)
	w := winners{of: map[runner.EventID]int{}}
	contend(t, p, 8, func(i int, s Store) {
		mine := slices.Clone(all)
		if i%4 > 1 {
			slices.Reverse(mine)
		}
		for _, id := range mine {
			won, err := false, error(nil)
			if i%2 == 0 {
				won, err = programWins(t.Context(), db, id)
			} else {
				var answer []bool
				if answer, err = s.Claim(t.Context(), taking(runner.TakeFailed|runner.TakeExpired, id)); err == nil {
					won = answer[0]
				}
			}
			if err != nil {
				t.Errorf("claiming %q: %v", id, err)
				return
			}
			w.add(ids(id), []bool{won})
		}
	})
	w.wantOneEach(t, n)
	wantRows(t, p, "select count(*) from processed_events", itoa(n))
}

func programWins(ctx context.Context, db *sql.DB, id string) (bool, error) {
	res, err := db.ExecContext(ctx, programClaim(quote(id)))
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// testProgramOpen: while the program's transaction is open its claim may still
// go away, so that oncectl's waits for the end of it.
func testProgramOpen(t *testing.T, h Harness, end string, won bool) {
	p, s := fresh(t, h)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := p.DB(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, stmt := range []string{"begin", programClaim("'a'")} {
		if _, err := c.ExecContext(t.Context(), stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	answered := make(chan bool, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		got, err := s.Claim(t.Context(), bare("a"))
		if err != nil {
			t.Errorf("Claim() behind an open transaction = %v", err)
			got = []bool{!won}
		}
		answered <- got[0]
	})
	// A claim that waits cannot be seen on every store. One that does not is
	// answered long before this; one that does never fails here.
	select {
	case got := <-answered:
		t.Fatalf("Claim() = %v while the program's transaction is open", got)
	case <-time.After(300 * time.Millisecond):
	}
	if _, err := c.ExecContext(t.Context(), end); err != nil {
		t.Fatalf("%s: %v", end, err)
	}
	wg.Wait()
	if got := <-answered; got != won {
		t.Errorf("Claim() = %v after the program's %s, want %v", got, end, won)
	}
}
