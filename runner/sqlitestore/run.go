package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// Begin implements runner.Recorder. ServerChanged is always false: there is no
// server. NoHandover is set where the lock's file is the one that the
// predecessor held: the kernel frees it only when its job's guard, too, has let
// it go. (An inode number is not given away while a holder has the file open.)
func (h *held) Begin(ctx context.Context, req runner.BeginRequest) (runner.Begun, error) {
	var b runner.Begun
	err := h.write(ctx, fmt.Sprintf("recording a run of lock %q", h.id.Name), func(tx *sql.Tx) error {
		if err := h.guard(ctx, tx, nil); err != nil {
			return err
		}
		if err := h.refuseDone(ctx, tx, req); err != nil {
			return err
		}
		latest, err := h.latestRuns(ctx, tx)
		if err != nil {
			return err
		}
		b = runner.Begun{}
		again := len(latest) > 0 && latest[0].run.Token == req.Token
		if again {
			b.Run, latest = latest[0].run, latest[1:]
		}
		if len(latest) > 0 && !latest[0].finished {
			b.Predecessor = &latest[0].run
			b.NoHandover = latest[0].lockFile == h.identity
		}
		if b.ExpiredSends, b.Wait, err = h.leftBehind(ctx, tx); err != nil || again {
			return err
		}
		b.Run, err = h.insertRun(ctx, tx, req, b.Predecessor != nil && !b.NoHandover)
		return err
	})
	return b, err
}

// leftBehind tells whether there are sends whose sender died, and what is left
// of the wait that an earlier run owed.
func (h *held) leftBehind(ctx context.Context, tx *sql.Tx) (sends bool, owed time.Duration, err error) {
	var until string
	err = tx.QueryRowContext(ctx, `select `+anyDeadSend+`, coalesce((select not_before from fences where lock_key = ?1), '')`,
		h.id.Key).Scan(&sends, &until)
	return sends, max(0, time.Until(parseTime(until))), err
}

// refuseDone returns ErrDone if another run of this lock and key has succeeded.
func (h *held) refuseDone(ctx context.Context, tx *sql.Tx, req runner.BeginRequest) error {
	if req.Key == "" {
		return nil
	}
	var done bool
	err := tx.QueryRowContext(ctx, `select exists (select 1 from runs
		where lock_key = ?1 and key = ?2 and outcome = 'succeeded' and token <> ?3)`, h.id.Key, req.Key, string(req.Token)).Scan(&done)
	if err == nil && done {
		err = runner.ErrDone
	}
	return err
}

// recordedRun is a row of runs.
type recordedRun struct {
	run      runner.Run
	finished bool
	lockFile string // the identity of the lock's file
}

// latestRuns returns the lock's two latest runs, the latest first.
func (h *held) latestRuns(ctx context.Context, tx *sql.Tx) ([]recordedRun, error) {
	rows, err := tx.QueryContext(ctx, `select id, lock, coalesce(key, ''), token, host, coalesce(host_id, ''), pid,
		coalesce(scheduled_at, ''), started_at, finished_at is not null, coalesce(server, '')
		from runs where lock_key = ?1 order by id desc limit 2`, h.id.Key)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []recordedRun
	for rows.Next() {
		r := recordedRun{run: runner.Run{Lock: h.id}}
		var scheduledAt, startedAt string
		err := rows.Scan(&r.run.ID, &r.run.Lock.Name, &r.run.Key, &r.run.Token, &r.run.Host.Name, &r.run.Host.ID, &r.run.PID,
			&scheduledAt, &startedAt, &r.finished, &r.lockFile)
		if err != nil {
			return nil, err
		}
		r.run.ScheduledAt, r.run.StartedAt = parseTime(scheduledAt), parseTime(startedAt)
		out = append(out, r)
	}
	return out, rows.Err()
}

// insertRun records the run and gives it the lock's fence. The wait for an
// unfinished run goes into the fence, so that it outlives a waiter.
func (h *held) insertRun(ctx context.Context, tx *sql.Tx, req runner.BeginRequest, waits bool) (runner.Run, error) {
	run := runner.Run{Lock: h.id, Key: req.Key, Token: req.Token, Host: req.Host, PID: req.PID, ScheduledAt: req.ScheduledAt}
	var startedAt string
	err := tx.QueryRowContext(ctx, `insert into runs (lock, lock_key, key, scheduled_at, token, host, host_id, pid, server)
		values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) returning id, started_at`,
		h.id.Name, h.id.Key, orNull(req.Key), timeOrNull(req.ScheduledAt), string(req.Token),
		req.Host.Name, orNull(req.Host.ID), req.PID, h.identity).Scan(&run.ID, &startedAt)
	if err != nil {
		return run, err
	}
	run.StartedAt = parseTime(startedAt)
	var notBefore time.Time
	if waits {
		notBefore = time.Now().Add(runner.HandoverWait)
	}
	_, err = tx.ExecContext(ctx, `insert into fences (lock_key, run_id, token, not_before) values (?1, ?2, ?3, ?4)
		on conflict (lock_key) do update set run_id = excluded.run_id, token = excluded.token,
		not_before = nullif(max(coalesce(not_before, ''), coalesce(excluded.not_before, '')), '')`,
		h.id.Key, run.ID, string(run.Token), timeOrNull(notBefore))
	return run, err
}

// Resume implements runner.Recorder. The run is under this lock's file now.
func (h *held) Resume(ctx context.Context, run runner.Run) error {
	return h.write(ctx, fmt.Sprintf("resuming run %d", run.ID), func(tx *sql.Tx) error {
		if err := h.guard(ctx, tx, &run); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "update runs set server = ?2 where id = ?1", run.ID, h.identity)
		return err
	})
}

// Finish implements runner.Recorder.
func (h *held) Finish(ctx context.Context, run runner.Run, end runner.RunEnd) error {
	return h.write(ctx, fmt.Sprintf("recording the end of run %d", run.ID), func(tx *sql.Tx) error {
		if end.Outcome == runner.RunSkipped {
			_, err := tx.ExecContext(ctx, "delete from runs where id = ?1 and token = ?2 and finished_at is null", run.ID, string(run.Token))
			return err
		}
		res, err := tx.ExecContext(ctx, `update runs set finished_at = `+now+`, outcome = ?3, exit_code = ?4
			where id = ?1 and token = ?2 and finished_at is null`, run.ID, string(run.Token), string(end.Outcome), end.ExitCode)
		if err != nil {
			return err
		}
		if end.Started {
			_, err := tx.ExecContext(ctx, "update fences set not_before = null where lock_key = ?1 and token = ?2 and not_before is not null",
				h.id.Key, string(run.Token))
			if err != nil {
				return err
			}
		}
		n, err := res.RowsAffected()
		if err != nil || n == 0 || end.DeadLetter == nil {
			return err
		}
		return insertDeadLetter(ctx, tx, end.DeadLetter)
	})
}

// insertDeadLetter saves d.
func insertDeadLetter(ctx context.Context, q querier, d *runner.DeadLetter) error {
	if err := d.Check(); err != nil {
		return err
	}
	var payload, request any
	if d.Payload != nil {
		payload = d.Payload
	}
	if d.Request != nil {
		request = string(d.Request)
	}
	_, err := q.ExecContext(ctx, `insert into failed_jobs
		(kind, name, event_id, payload_hash, payload, request, last_error, attempts, certainty, retry_at)
		values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`,
		string(d.Kind), runner.KeptText(d.Name), orNull(string(d.EventID)), orNull(d.PayloadHash), payload, request,
		runner.KeptText(d.LastError), d.Attempts, string(d.Certainty), timeOrNull(d.RetryAt))
	return err
}

// orNull is how an empty string is stored.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return formatTime(t)
}
