package pgstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// Where there are no keys a lease goes on with the short statement. A row with
// a key that comes meanwhile is found by the next look at the beginning, and
// from then on no look leaves keys out.
func TestLease_WhenThereAreNoKeys_LooksForThemAgainFromTheBeginning(t *testing.T) {
	url, schema := pgtest.Schema(t)
	s := open(t, url, schema)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, fmt.Sprintf(`insert into %s.outbox (topic, payload) select 't', '{}' from generate_series(1, 60)`, schema))
	lease := func(from runner.OutboxCursor) (ids []int64, keyed int, next runner.OutboxCursor) {
		rows, next, err := s.Lease(t.Context(), runner.OutboxLease{Token: runner.NewToken(), Limit: 10, For: time.Minute, From: from})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			ids = append(ids, r.ID)
			if r.Keyed {
				keyed++
			}
		}
		return ids, keyed, next
	}
	_, _, next := lease(runner.OutboxCursor{})
	if want := (runner.OutboxCursor{ID: 10, Unkeyed: true}); next != want {
		t.Fatalf("the first look goes on at %+v, want %+v", next, want)
	}
	// As if committed late: it has a lower id than all others that wait.
	pgtest.Exec(t, url, fmt.Sprintf(`insert into %s.outbox (id, topic, key, payload) values (-1, 't', 'k', '{}')`, schema))
	ids, keyed, next := lease(next)
	if len(ids) != 10 || ids[0] != 11 || keyed != 0 || next.ID != 20 {
		t.Errorf("the second look has rows %v and goes on at %+v", ids, next)
	}
	ids, keyed, next = lease(runner.OutboxCursor{})
	if len(ids) != 10 || ids[0] != -1 || keyed != 1 || next.Unkeyed {
		t.Errorf("the look at the beginning has rows %v and goes on at %+v", ids, next)
	}
	if _, _, next = lease(next); next.Unkeyed {
		t.Errorf("while a key is leased, a look goes on at %+v", next)
	}
}
