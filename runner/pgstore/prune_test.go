package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// A table that grew just now has no statistics, by which a plan may join all
// runs of a lock with all: the second batch would then take minutes.
func TestPrune_WhenTheTableHasNoStatistics_StaysLinear(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	s := open(t, url, schema)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, s.sql(`alter table {s}.runs set (autovacuum_enabled = off)`), s.sql(`
		insert into {s}.runs (lock, lock_key, token, host, pid, finished_at, outcome)
		select 'l', i % 2, gen_random_uuid(), 'h', 1, '2001-01-01Z', case when i > 9 then 'failed' else 'succeeded' end
		from generate_series(1, 50000) i`))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := s.Prune(ctx, time.Hour)
	if err != nil || p.Runs != 50000-4 {
		t.Errorf("Prune() = %+v, %v, want all runs but two of each lock gone", p, err)
	}
}
