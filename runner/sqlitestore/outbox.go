package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// takeable is the condition under which a row of the outbox may be published.
// ?1 is the topic, or empty.
const takeable = `o.failed_at is null and (o.leased_until is null or o.leased_until <= ` + now + `) and (?1 = '' or o.topic = ?1)`

// runOf finds the first unsent rows of the key ?2. Rows that have failed are
// passed over if they hold nobody up: with SkipFailed (?3), or once a person
// has resolved their dead letters. ?4 is how many.
const runOf = `select o.id, ` + takeable + ` from outbox o
	where o.key = ?2 and o.sent_at is null and not (o.failed_at is not null and (?3 or not exists (
		select 1 from failed_jobs f where f.event_id = 'outbox-' || o.id and f.kind = 'outbox' and f.resolved_at is null)))
	order by o.id limit ?4`

const unkeyedRows = `select o.id from outbox o
	where o.sent_at is null and o.key is null and o.id > ?2 and ` + takeable + ` order by o.id limit ?3`

// Lease implements runner.OutboxLeaser. Only one process writes at a time, so
// that what it reads under the write lock is what is there.
func (s *Store) Lease(ctx context.Context, l runner.OutboxLease) (rows []runner.OutboxRow, next runner.OutboxCursor, err error) {
	some, err := s.peek(ctx, l.Topic)
	if err != nil || !some {
		return nil, next, err
	}
	err = s.write(ctx, "leasing rows of the outbox", func(tx *sql.Tx) error {
		rows = nil
		if err := s.guard(ctx, tx, nil); err != nil {
			return err
		}
		var ids []int64
		if ids, next, err = pick(ctx, tx, l); err != nil || len(ids) == 0 {
			return err
		}
		rows, err = take(ctx, tx, l.Token, ids, modifier(l.For))
		return err
	})
	if err != nil {
		return nil, runner.OutboxCursor{}, err
	}
	return rows, next, nil
}

// peek looks without taking the write lock.
func (s *Store) peek(ctx context.Context, topic string) (some bool, err error) {
	err = s.do(ctx, "looking into the outbox", s.patient(), func() error {
		if err := s.guard(ctx, s.db, nil); err != nil {
			return err
		}
		return s.db.QueryRowContext(ctx, `select exists (select 1 from outbox o where o.sent_at is null and `+takeable+`)`, topic).Scan(&some)
	})
	return some, err
}

// pick chooses the rows of a lease: those without a key in order, and the first
// rows of each key, the heads before what is behind them.
func pick(ctx context.Context, tx *sql.Tx, l runner.OutboxLease) (ids []int64, next runner.OutboxCursor, err error) {
	unkeyed, err := queryIDs(ctx, tx, unkeyedRows, l.Topic, l.From.AfterID(), l.Limit)
	if err != nil {
		return nil, next, err
	}
	runs, lastKey, more, err := pickRuns(ctx, tx, l)
	if err != nil {
		return nil, next, err
	}
	// The first of each are in the order of their ids, whether they have a key.
	heads := make([]int64, len(runs))
	for i, r := range runs {
		heads[i] = r[0]
	}
	ids = mergeSorted(unkeyed, heads)
	for pos := 1; len(ids) < l.Limit; pos++ {
		before := len(ids)
		for _, r := range runs {
			if pos < len(r) {
				ids = append(ids, r[pos])
			}
		}
		if len(ids) == before {
			break
		}
	}
	ids = ids[:min(len(ids), l.Limit)]
	if len(unkeyed) == l.Limit {
		next.ID = lastTaken(unkeyed, ids, l.From.AfterID())
	}
	if more {
		next.Key = lastKey
	}
	return ids, next, nil
}

// pickRuns walks over the keys from one to the next, until there are enough.
func pickRuns(ctx context.Context, tx *sql.Tx, l runner.OutboxLease) (runs [][]int64, key string, more bool, err error) {
	first, after, err := prepare(ctx, tx, `select key from outbox where sent_at is null and key >= ?1 order by key limit 1`,
		`select key from outbox where sent_at is null and key > ?1 order by key limit 1`)
	if err != nil {
		return nil, "", false, err
	}
	run, busy, err := prepare(ctx, tx, runOf, `select exists (select 1 from outbox
		where key = ?1 and sent_at is null and leased_until is not null and token is not null and leased_until > `+now+`)`)
	if err != nil {
		return nil, "", false, err
	}
	step := after
	if key = l.From.Key; key == "" {
		step = first // the empty key too
	}
	for {
		if err := step.QueryRowContext(ctx, key).Scan(&key); errors.Is(err, sql.ErrNoRows) {
			return sortRuns(runs), "", false, nil
		} else if err != nil {
			return nil, "", false, err
		}
		step = after
		var held bool
		if err := busy.QueryRowContext(ctx, key).Scan(&held); err != nil {
			return nil, "", false, err
		}
		if held {
			continue
		}
		ids, err := pickRun(ctx, run, l, key)
		if err != nil {
			return nil, "", false, err
		}
		if len(ids) == 0 {
			continue
		}
		if runs = append(runs, ids); len(runs) == l.Limit {
			return sortRuns(runs), key, true, nil
		}
	}
}

// pickRun is the rows of a key up to one that may not go out now.
func pickRun(ctx context.Context, run *sql.Stmt, l runner.OutboxLease, key string) (ids []int64, err error) {
	rows, err := run.QueryContext(ctx, l.Topic, key, l.SkipFailed, min(l.Limit, runner.OutboxRunLength))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var ok bool
		if err := rows.Scan(&id, &ok); err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// take leases the rows and returns them in the order of their ids.
func take(ctx context.Context, tx *sql.Tx, token runner.Token, ids []int64, until string) ([]runner.OutboxRow, error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, `update outbox set token = ?2, leased_until = `+later("?3")+`,
		doubtful = doubtful or (token is not null and leased_until is not null)
		where id in (select value from json_each(?1))`, string(list), string(token), until)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, `select id, topic, coalesce(key, ''), key is not null, payload, attempts, doubtful
		from outbox where id in (select value from json_each(?1)) order by id`, string(list))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []runner.OutboxRow
	for rows.Next() {
		var r runner.OutboxRow
		if err := rows.Scan(&r.ID, &r.Topic, &r.Key, &r.Keyed, &r.Payload, &r.Attempts, &r.Doubtful); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

func queryIDs(ctx context.Context, q querier, query string, args ...any) (ids []int64, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// RenewLeases implements runner.OutboxLeaser.
func (s *Store) RenewLeases(ctx context.Context, token runner.Token, ids []int64, d time.Duration) (held []int64, err error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("renewing leases of the outbox: %w", err)
	}
	err = s.write(ctx, "renewing leases of the outbox", func(tx *sql.Tx) error {
		if err := s.guard(ctx, tx, nil); err != nil {
			return err
		}
		held, err = queryIDs(ctx, tx, `update outbox set leased_until = `+later("?3")+`
			where id in (select value from json_each(?1)) and token = ?2 and sent_at is null and leased_until is not null
			returning id`, string(list), string(token), modifier(d))
		return err
	})
	return held, err
}

// sortRuns puts runs in the order of their first rows.
func sortRuns(runs [][]int64) [][]int64 {
	slices.SortFunc(runs, func(a, b []int64) int { return cmp.Compare(a[0], b[0]) })
	return runs
}

// mergeSorted is both lists in one, in order.
func mergeSorted(a, b []int64) []int64 {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return all
}

// lastTaken is the last of some rows that is among those taken.
func lastTaken(some, taken []int64, otherwise int64) int64 {
	for _, id := range slices.Backward(some) {
		if slices.Contains(taken, id) {
			return id
		}
	}
	return otherwise
}
