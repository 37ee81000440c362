package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/oncectl/oncectl/runner"
)

const selectLetters = `select id, kind, name, coalesce(event_id, ''), coalesce(payload_hash, ''), request, last_error, attempts,
	certainty, failed_at, coalesce(retry_at, ''), coalesce(resolved_at, ''), coalesce(resolution, ''), `

// EachDeadLetter implements runner.DeadLetters. It reads by a connection of its
// own, so that f may use the store.
func (s *Store) EachDeadLetter(ctx context.Context, filter runner.DeadLetterFilter, f func(runner.DeadLetter) error) error {
	db, err := openDB(s.path)
	if err != nil {
		return fmt.Errorf("reading dead letters: %w", err)
	}
	defer db.Close()
	var rows *sql.Rows
	err = s.do(ctx, "reading dead letters", s.patient(), func() (err error) {
		if err := s.guard(ctx, db, nil); err != nil {
			return err
		}
		rows, err = queryLetters(ctx, db, filter)
		return err
	})
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		d, err := scanLetter(rows)
		if err != nil {
			return fmt.Errorf("reading dead letters: %w", s.translate(err))
		}
		if err := f(d); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading dead letters: %w", s.translate(err))
	}
	return nil
}

func queryLetters(ctx context.Context, db *sql.DB, filter runner.DeadLetterFilter) (*sql.Rows, error) {
	var since any
	if filter.Since > 0 {
		since = modifier(-filter.Since)
	}
	return db.QueryContext(ctx, selectLetters+`null, false from failed_jobs
		where (?4 or resolved_at is null) and (?1 = '' or kind = ?1) and (?2 = '' or name = ?2)
		and (?3 is null or failed_at >= `+later("?3")+`) and (not ?5 or retry_at <= `+now+`)
		order by id`, string(filter.Kind), runner.KeptText(filter.Name), since, filter.All, filter.Due)
}

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }

func scanLetter(r scanner) (runner.DeadLetter, error) {
	var d runner.DeadLetter
	var request sql.NullString
	var failedAt, retryAt, resolvedAt string
	var kept bool
	err := r.Scan(&d.ID, &d.Kind, &d.Name, &d.EventID, &d.PayloadHash, &request, &d.LastError, &d.Attempts,
		&d.Certainty, &failedAt, &retryAt, &resolvedAt, &d.Resolution, &d.Payload, &kept)
	d.FailedAt, d.RetryAt, d.ResolvedAt = parseTime(failedAt), parseTime(retryAt), parseTime(resolvedAt)
	if kept && d.Payload == nil {
		d.Payload = []byte{} // the driver's value of a blob of no bytes is nil
	}
	if request.Valid {
		d.Request = []byte(request.String)
	}
	return d, err
}

// DeadLetter implements runner.DeadLetters.
func (s *Store) DeadLetter(ctx context.Context, id int64) (d runner.DeadLetter, err error) {
	err = s.do(ctx, fmt.Sprintf("reading dead letter %d", id), s.patient(), func() error {
		if err := s.guard(ctx, s.db, nil); err != nil {
			return err
		}
		d, err = scanLetter(s.db.QueryRowContext(ctx, selectLetters+`payload, payload is not null from failed_jobs where id = ?1`, id))
		if errors.Is(err, sql.ErrNoRows) {
			return runner.ErrNoDeadLetter
		}
		return err
	})
	if errors.Is(err, runner.ErrNoDeadLetter) {
		err = runner.ErrNoDeadLetter // the caller knows which one it asked for
	}
	return d, err
}

// Resolve implements runner.DeadLetters.
func (s *Store) Resolve(ctx context.Context, id int64, resolution string) (bool, error) {
	var n int64
	err := s.write(ctx, fmt.Sprintf("resolving dead letter %d", id), func(tx *sql.Tx) error {
		if err := s.guard(ctx, tx, nil); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `update failed_jobs set resolved_at = `+now+`, resolution = ?2
			where id = ?1 and resolved_at is null`, id, runner.KeptText(resolution))
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n > 0, err
}

// deadSend is the condition of a send whose sender died.
const deadSend = `outcome is null and expires_at is not null and expires_at <= ` + now + ` and target is not null`

// anyDeadSend tells whether there is any.
const anyDeadSend = `exists (select 1 from processed_events where ` + deadSend + `)`

// Sweep implements runner.Sweeper. It looks before it takes the write lock,
// since there is almost never anything to do.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	var some bool
	err := s.do(ctx, "looking for sends that were never finished", s.patient(), func() error {
		if err := s.guard(ctx, s.db, nil); err != nil {
			return err
		}
		return s.db.QueryRowContext(ctx, "select "+anyDeadSend).Scan(&some)
	})
	if err != nil || !some {
		return 0, err
	}
	var n int
	err = s.write(ctx, "recording sends that were never finished", func(tx *sql.Tx) error {
		doubtful, err := texts(tx.QueryContext(ctx, `update processed_events set outcome = 'in_doubt', finished_at = `+now+`
			where `+deadSend+` returning event_id`))
		if err != nil {
			return err
		}
		n = len(doubtful)
		return sweptLetters(ctx, tx, doubtful)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// texts reads a column and closes rows.
func texts(rows *sql.Rows, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []string{}
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// sweptLetters makes the dead letters of sends whose sender died. They take the
// place of those that the events had; of the latest with the same payload each
// keeps what a sweep cannot know.
func sweptLetters(ctx context.Context, tx *sql.Tx, ids []string) error {
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	var latest int64
	if err := tx.QueryRowContext(ctx, "select coalesce(max(id), 0) from failed_jobs").Scan(&latest); err != nil {
		return err
	}
	const before = ` from failed_jobs l where l.event_id = e.event_id and l.payload_hash = e.payload_hash
		and l.resolved_at is null and l.kind = 'send' order by l.id desc limit 1)`
	_, err = tx.ExecContext(ctx, `insert into failed_jobs (kind, name, event_id, payload_hash, payload, request, last_error, attempts, certainty)
		select 'send', target, event_id, payload_hash, (select l.payload`+before+`, (select l.request`+before+`,
			'its sender (' || coalesce(owner, 'unknown') || ') ended before it could record what became of it', 1, 'in_doubt'
		from processed_events e where event_id in (select value from json_each(?1)) order by event_id`, string(list))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `update failed_jobs set resolved_at = `+now+`, resolution = 'tried again'
		where event_id in (select value from json_each(?1)) and id <= ?2 and resolved_at is null and kind in ('send', 'claim')`, string(list), latest)
	return err
}
