package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// markRow records what became of a row. A sent or failed row keeps its token,
// so that the same mark made again finds it marked. Parameters: id, token,
// verdict, delay, whether the try counts, error, doubt.
const markRow = `update outbox set
	sent_at = case ?3 when 0 then ` + now + ` end,
	failed_at = case ?3 when 0 then null when 2 then ` + now + ` else failed_at end,
	leased_until = case ?3 when 1 then strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?4) end,
	token = case when ?3 in (0, 2) then token end,
	attempts = attempts + ?5,
	doubtful = doubtful or ?7,
	last_error = case ?3 when 0 then null when 3 then last_error else ?6 end
	where id = ?1 and token = ?2 and sent_at is null and leased_until is not null`

// markedBefore: parameters id, token, verdict.
const markedBefore = `select exists (select 1 from outbox where id = ?1 and token = ?2 and leased_until is null
	and (?3 = 0 and sent_at is not null or ?3 = 2 and sent_at is null and failed_at is not null))`

// Mark implements runner.OutboxMarker.
func (s *Store) Mark(ctx context.Context, token runner.Token, marks []runner.OutboxMark) ([]bool, error) {
	owned := make([]bool, len(marks))
	if len(marks) == 0 {
		return owned, nil
	}
	for _, m := range marks {
		if err := m.Check(); err != nil {
			return nil, err
		}
	}
	err := s.write(ctx, "marking rows of the outbox", func(tx *sql.Tx) error {
		if err := s.guard(ctx, tx, nil); err != nil {
			return err
		}
		mark, before, err := prepare(ctx, tx, markRow, markedBefore)
		if err != nil {
			return err
		}
		for i, m := range marks {
			if owned[i], err = markOne(ctx, tx, mark, before, token, m); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return owned, nil
}

func markOne(ctx context.Context, tx *sql.Tx, mark, before *sql.Stmt, token runner.Token, m runner.OutboxMark) (owned bool, err error) {
	res, err := mark.ExecContext(ctx, m.ID, string(token), int(m.Verdict), modifier(m.After), m.Counted(), runner.KeptText(m.LastError), m.Doubtful)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, err
	}
	if n == 0 {
		err := before.QueryRowContext(ctx, m.ID, string(token), int(m.Verdict)).Scan(&owned)
		return owned, err
	}
	if m.Verdict == runner.OutboxSent || m.Verdict == runner.OutboxDead {
		resolution := "delivered"
		if m.Verdict == runner.OutboxDead {
			resolution = "tried again"
		}
		if err := resolveOutbox(ctx, tx, m.ID, resolution); err != nil {
			return false, err
		}
	}
	if m.Verdict == runner.OutboxDead {
		return true, insertDeadLetter(ctx, tx, m.DeadLetter)
	}
	return true, nil
}

// resolveOutbox resolves the dead letters of a row.
func resolveOutbox(ctx context.Context, tx *sql.Tx, id int64, resolution string) error {
	_, err := tx.ExecContext(ctx, `update failed_jobs set resolved_at = `+now+`, resolution = ?2
		where event_id = ?1 and resolved_at is null and kind = 'outbox'`, string(runner.OutboxEventID(id)), resolution)
	return err
}

// AddToOutbox implements runner.OutboxAdder.
func (s *Store) AddToOutbox(ctx context.Context, e runner.OutboxEntry) (id int64, err error) {
	if err := e.Check(); err != nil {
		return 0, err
	}
	err = s.write(ctx, "adding to the outbox", func(tx *sql.Tx) error {
		if err := s.guard(ctx, tx, nil); err != nil {
			return err
		}
		err := tx.QueryRowContext(ctx, `select id from outbox
			where token = ?1 and token is not null and leased_until is null and sent_at is null`, string(e.Token)).Scan(&id)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return tx.QueryRowContext(ctx, `insert into outbox (topic, key, payload, token) values (?1, nullif(?2, ''), ?3, ?4) returning id`,
			e.Topic, e.Key, string(e.Payload), string(e.Token)).Scan(&id)
	})
	return id, err
}

// LeaseFailed implements runner.OutboxReviver.
func (s *Store) LeaseFailed(ctx context.Context, id int64, token runner.Token, d time.Duration) (row runner.OutboxRow, err error) {
	err = s.write(ctx, fmt.Sprintf("leasing row %d of the outbox", id), func(tx *sql.Tx) error {
		if err := s.guard(ctx, tx, nil); err != nil {
			return err
		}
		var busy bool
		err := tx.QueryRowContext(ctx, `select coalesce(o.leased_until > `+now+`, 0) or exists (select 1 from outbox l
			where l.key = o.key and l.sent_at is null and l.leased_until is not null and l.token is not null and l.leased_until > `+now+`)
			from outbox o where o.id = ?1 and o.sent_at is null and o.failed_at is not null`, id).Scan(&busy)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return runner.ErrNoOutboxRow
		case err != nil:
			return err
		case busy:
			return runner.ErrOutboxLeased
		}
		rows, err := take(ctx, tx, token, []int64{id}, modifier(d))
		if err == nil {
			row = rows[0]
		}
		return err
	})
	return row, err
}

// PutBack implements runner.OutboxReviver.
func (s *Store) PutBack(ctx context.Context, id int64) error {
	return s.write(ctx, fmt.Sprintf("putting back row %d of the outbox", id), func(tx *sql.Tx) error {
		if err := s.guard(ctx, tx, nil); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `update outbox set failed_at = null, attempts = 0, leased_until = null, token = null
			where id = ?1 and sent_at is null and failed_at is not null and (leased_until is null or leased_until <= `+now+`)`, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, runner.ErrNoOutboxRow)
		}
		return resolveOutbox(ctx, tx, id, "put back into the outbox")
	})
}

// Backlog implements runner.OutboxReader.
func (s *Store) Backlog(ctx context.Context, topic string) (b runner.OutboxBacklog, err error) {
	err = s.do(ctx, "counting the outbox", s.patient(), func() error {
		if err := s.guard(ctx, s.db, nil); err != nil {
			return err
		}
		var oldest string
		var age float64
		err := s.db.QueryRowContext(ctx, `select count(*) filter (where failed_at is null),
			coalesce(min(created_at) filter (where failed_at is null), ''),
			coalesce((julianday('now') - julianday(min(created_at) filter (where failed_at is null))) * 86400, 0),
			count(*) filter (where failed_at is not null)
			from outbox where sent_at is null and (?1 = '' or topic = ?1)`, topic).Scan(&b.Pending, &oldest, &age, &b.Failed)
		b.Oldest, b.Age = parseTime(oldest), time.Duration(age*float64(time.Second))
		return err
	})
	return b, err
}
