package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// The rows that are over, by table. Each walks along its primary key, so that a
// whole prune reads a table once, and passes over what somebody else has locked.
// The conditions are checked again once the rows are locked: a claim that was
// taken over meanwhile stays. What else has to be looked up is a value, not an
// "exists", so that no plan joins all rows with all rows; "<=" is that of eachLock.
// Parameters: age in microseconds, the key behind
// which to look, how many, this binary's schema version.
const (
	overClaims = `select e.event_id as id from {s}.processed_events e
	where e.event_id > $2::text
		and (e.outcome in ('delivered', 'failed') or e.outcome is null and e.expires_at is null)
		and greatest(e.claimed_at, e.finished_at) < now() - $1::bigint * interval '1 microsecond'
		and (select oldest_binary from info) <= $4::int
	order by e.event_id limit $3::int for update skip locked`
	overLetters = `select l.id from {s}.failed_jobs l
	where l.id > $2::bigint and l.resolved_at < now() - $1::bigint * interval '1 microsecond'
		and (select true from {s}.processed_events e where e.event_id = l.event_id and e.outcome = 'in_doubt') is null
		and (select oldest_binary from info) <= $4::int
	order by l.id limit $3::int for update of l skip locked`
	overOutbox = `select o.id from {s}.outbox o
	where o.id > $2::bigint and o.sent_at < now() - $1::bigint * interval '1 microsecond'
		and (select oldest_binary from info) <= $4::int
	order by o.id limit $3::int for update skip locked`
	// A key without a scheduled time is that of --once, which is for ever.
	overRuns = `select r.id from {s}.runs r
	where r.id > $2::bigint and r.finished_at < now() - $1::bigint * interval '1 microsecond'
		and not (r.outcome = 'succeeded' and r.key is not null and r.scheduled_at is null)
		and r.id < (select n.id from {s}.runs n
			where n.lock_key <= r.lock_key order by n.lock_key desc, n.id desc limit 1)
		and (r.outcome <> 'succeeded' or r.id < (select n.id from {s}.runs n
			where n.lock_key <= r.lock_key and n.outcome = 'succeeded' order by n.lock_key desc, n.id desc limit 1))
		and (select oldest_binary from info) <= $4::int
	order by r.id limit $3::int for update of r skip locked`
)

// deleteOver deletes one batch, and tells how many rows it had and where it
// ended. For %[1]s the table, for %[2]s its key, for %[3]s the rows.
const deleteOver = `with info as (select oldest_binary from {s}.schema_info),
over as materialized (
	%[3]s
),
gone as (
	delete from {s}.%[1]s where %[2]s = any(array(select id from over)) returning 1
)
select (select oldest_binary from info)::text, 'true', (select count(*) from gone), (select max(id) from over)::text, (select count(*) from over)`

// Prune implements runner.Pruner.
func (s *Store) Prune(ctx context.Context, age time.Duration) (runner.Pruned, error) {
	var p runner.Pruned
	if age <= 0 {
		return p, fmt.Errorf("%w: the age must be positive, not %v", runner.ErrInvalid, age)
	}
	for _, t := range []struct {
		table, key, over, from string
		count                  *int
	}{
		{"processed_events", "event_id", overClaims, "", &p.Claims},
		{"failed_jobs", "id", overLetters, "0", &p.DeadLetters},
		{"outbox", "id", overOutbox, "0", &p.Outbox},
		{"runs", "id", overRuns, "0", &p.Runs},
	} {
		text := s.sql(fmt.Sprintf(deleteOver, t.table, t.key, t.over))
		if err := s.pruneTable(ctx, text, age, t.from, t.count); err != nil {
			return p, fmt.Errorf("pruning %s: %w", t.table, err)
		}
	}
	return p, nil
}

// pruneTable deletes batch after batch, each in a transaction of its own.
func (s *Store) pruneTable(ctx context.Context, text string, age time.Duration, from string, count *int) error {
	for {
		results, err := s.exec(ctx, runner.ClaimPatience, statement{sql: onIndexes},
			statement{text, []any{age.Microseconds(), from, runner.PruneBatch, sqlschema.Version}})
		if err != nil {
			return err
		}
		r := results[1][0]
		if err := letIn(r); err != nil {
			return err
		}
		*count += int(r.number(2))
		if r.number(4) < runner.PruneBatch {
			return nil
		}
		from = r.text(3)
	}
}
