package pgstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// An application's open transaction has inserted the id: nobody can know yet
// who wins.
func TestClaim_WhenAnOpenTransactionHoldsTheID_IsUndecidedAfterFiveSeconds(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		s := open(t, via, schema)
		h := take(t, s)
		run := beginRunOf(t, h)
		letGo := hold(t, direct, schema, "a")
		for what, c := range map[string]struct {
			claimer runner.Claimer
			run     *runner.Run
		}{"the lock": {h, &run}, "the store": {s, nil}} {
			began := time.Now()
			_, err := c.claimer.Claim(t.Context(), claimOf(c.run, "a"))
			wantErr(t, "Claim by "+what, err, runner.ErrUndecided)
			if took := time.Since(began); took < runner.ClaimPatience || took > 2*runner.ClaimPatience {
				t.Errorf("by %s it took %v, want %v", what, took, runner.ClaimPatience)
			}
			wantHeld(t, h)
		}
		letGo()
		wantWon(t, h, claimOf(&run, "a"), true)
	})
}

// Each wait is shorter than the patience; together they are longer than the
// deadline of the lock.
func TestClaim_WhenManyTransactionsHoldIDs_TheLockIsNotLost(t *testing.T) {
	t.Parallel()
	direct, schema := pgtest.Schema(t)
	h := take(t, open(t, direct, schema))
	run := beginRunOf(t, h)
	const n, each = 5, 4 * time.Second
	var ids []string
	for i := range n {
		id := fmt.Sprint("id/", i) // claimed in this order
		ids = append(ids, id)
		time.AfterFunc(time.Duration(i+1)*each, hold(t, direct, schema, id))
	}
	_, err := h.Claim(t.Context(), claimOf(&run, ids...))
	if err != nil {
		wantErr(t, "Claim", err, runner.ErrUndecided)
	}
	wantHeld(t, h)
	if n := len(holders(t, direct, schema)); n != 1 {
		t.Errorf("%d processes hold the lock", n)
	}
}
