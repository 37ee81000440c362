package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// manyRows fills the tables so that a plan matters: most claims are over, most
// dead letters resolved, most rows of the outbox sent.
const manyRows = `
insert into {s}.processed_events (event_id, outcome) select 'e' || i, case when i % 1000 = 0 then 'in_doubt' end from generate_series(1, 50000) i;
insert into {s}.runs (lock, lock_key, token, host, pid, finished_at, outcome)
	select 'lock ' || i % 5, i % 5, gen_random_uuid(), 'h', 1, now(), case when i < 5 then 'succeeded' else 'failed' end from generate_series(1, 20000) i;
insert into {s}.failed_jobs (kind, name, event_id, last_error, certainty, resolved_at)
	select 'send', 'h', 'e' || i, 'x', 'in_doubt', case when i > 100 then now() end from generate_series(1, 20000) i;
insert into {s}.outbox (topic, payload, sent_at) select 't', '{}', case when i > 100 then now() end from generate_series(1, 20000) i;`

// The plans are of what is few, not of what is many, whatever the tables'
// statistics say: none (a table that grew just now), or those of all rows.
func TestStatus_WhenTheTablesAreLarge_ReadsNoneOfThemWhole(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	s := open(t, url, schema)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, s.sql(manyRows))
	for _, statistics := range []string{"none", "fresh"} {
		for name, query := range map[string]string{"counts": countAll, "letters": countLetters, "locks": eachLock} {
			results, err := s.exec(t.Context(), time.Minute, statement{sql: onIndexes}, statement{sql: "explain (analyze, timing off, summary off) " + s.sql(query)})
			if err != nil {
				t.Fatal(err)
			}
			plan := ""
			for _, r := range results[1] {
				plan += r.text(0) + "\n"
			}
			for _, table := range []string{"processed_events", "runs", "failed_jobs", "outbox"} {
				if strings.Contains(plan, "Seq Scan on "+table) {
					t.Errorf("%s, statistics %s: %s is read whole:\n%s", name, statistics, table, plan)
				}
			}
			// An index can be walked from end to end, too.
			for _, whole := range []string{"processed_events_pkey", "runs_pkey", "failed_jobs_pkey", "outbox_pkey", "actual rows=20000 ", "actual rows=50000 "} {
				if strings.Contains(plan, whole) {
					t.Errorf("%s, statistics %s: the plan has %s:\n%s", name, statistics, whole, plan)
				}
			}
		}
		pgtest.Exec(t, url, s.sql("analyze {s}.processed_events, {s}.runs, {s}.failed_jobs, {s}.outbox"))
	}
}
