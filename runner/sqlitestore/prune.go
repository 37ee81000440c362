package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// over lists, by table, the rows that are over; ?1 is the age as a modifier.
// Each walks along its primary key, so that a whole prune reads a table once.
var over = []struct {
	table, key, where string
	first             any // what is before every key
	count             func(*runner.Pruned) *int
}{
	{"processed_events", "event_id", `(outcome in ('delivered', 'failed') or outcome is null and expires_at is null)
		and max(` + claimedAt + `, coalesce(finished_at, '')) < ` + later("?1"), "", func(p *runner.Pruned) *int { return &p.Claims }},
	{"failed_jobs", "id", `resolved_at < ` + later("?1") + `
		and not exists (select 1 from processed_events e where e.event_id = t.event_id and e.outcome = 'in_doubt')`,
		0, func(p *runner.Pruned) *int { return &p.DeadLetters }},
	{"outbox", "id", `sent_at < ` + later("?1"), 0, func(p *runner.Pruned) *int { return &p.Outbox }},
	// A key without a scheduled time is that of --once, which is for ever.
	{"runs", "id", `finished_at < ` + later("?1") + `
		and not (outcome = 'succeeded' and key is not null and scheduled_at is null)
		and exists (select 1 from runs n where n.lock_key = t.lock_key and n.id > t.id)
		and (outcome <> 'succeeded' or exists (
			select 1 from runs n where n.lock_key = t.lock_key and n.id > t.id and n.outcome = 'succeeded'))`,
		0, func(p *runner.Pruned) *int { return &p.Runs }},
}

// Prune implements runner.Pruner.
func (s *Store) Prune(ctx context.Context, age time.Duration) (runner.Pruned, error) {
	var p runner.Pruned
	if age <= 0 {
		return p, fmt.Errorf("%w: the age must be positive, not %v", runner.ErrInvalid, age)
	}
	for _, t := range over {
		query := fmt.Sprintf(`delete from %[1]s where %[2]s in (
			select %[2]s from %[1]s t where %[2]s > ?2 and %[3]s order by %[2]s limit ?3) returning %[2]s`, t.table, t.key, t.where)
		if err := s.pruneTable(ctx, query, t.table, age, t.first, t.count(&p)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// pruneTable deletes batch after batch, each in a transaction of its own.
// Between two it leaves the database to others for as long as it took: SQLite
// has one writer, and no queue for it.
func (s *Store) pruneTable(ctx context.Context, query, table string, age time.Duration, from any, count *int) error {
	for {
		n, start := 0, time.Now()
		err := s.write(ctx, "pruning "+table, func(tx *sql.Tx) (err error) {
			if err := s.guard(ctx, tx, nil); err != nil {
				return err
			}
			n, from, err = deleteBatch(ctx, tx, query, age, from)
			return err
		})
		if err != nil {
			return err
		}
		*count += n
		if n < runner.PruneBatch {
			return nil
		}
		if err := sleep(ctx, time.Since(start)); err != nil {
			return fmt.Errorf("pruning %s: %w", table, s.translate(err))
		}
	}
}

// deleteBatch deletes what is behind from, and tells how many rows that were
// and where it ended.
func deleteBatch(ctx context.Context, tx *sql.Tx, query string, age time.Duration, from any) (n int, last any, err error) {
	rows, err := tx.QueryContext(ctx, query, modifier(-age), from, runner.PruneBatch)
	if err != nil {
		return 0, from, err
	}
	defer rows.Close()
	for last = from; rows.Next(); n++ {
		var key any
		if err := rows.Scan(&key); err != nil {
			return n, from, err
		}
		last = greater(last, key)
	}
	return n, last, rows.Err()
}

// greater is the greater of two keys; rows are deleted in no certain order.
func greater(a, b any) any {
	switch b := b.(type) {
	case string:
		if a, ok := a.(string); ok && a > b {
			return a
		}
	case int64:
		if a, ok := a.(int64); ok && a > b {
			return a
		}
	}
	return b
}
