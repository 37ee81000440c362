package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// runColumns are those of a runner.PastRun, and the time of the statement.
const runColumns = `r.id, r.lock, r.lock_key, coalesce(r.key, ''), coalesce(r.scheduled_at, ''), r.host, r.pid, r.started_at,
	coalesce(r.finished_at, ''), coalesce(r.outcome, ''), coalesce(r.exit_code, 0), ` + now

// eachLock shows the latest run of each lock. It steps along runs_lock from one
// key to the next, and reads two rows of each: however many runs there are, it
// takes as long as there are locks.
const eachLock = `with recursive keys (lock_key) as (
	select min(lock_key) from runs
	union all
	select (select min(r.lock_key) from runs r where r.lock_key > k.lock_key) from keys k where k.lock_key is not null
)
select ` + runColumns + `, coalesce((
	select s.finished_at from runs s where s.lock_key = k.lock_key and s.outcome = 'succeeded' order by s.id desc limit 1), '')
from keys k join runs r on r.id = (select l.id from runs l where l.lock_key = k.lock_key order by l.id desc limit 1)
order by r.lock, r.id`

// countAll counts by partial indexes. An event in doubt is closed where a
// person has resolved its dead letters.
const countAll = `select ` + now + `,
	(select count(*) from processed_events where outcome = 'in_doubt'),
	(select count(*) from processed_events e where outcome = 'in_doubt'
		and exists (select 1 from failed_jobs l where l.event_id = e.event_id and l.resolved_at is not null)
		and not exists (select 1 from failed_jobs l where l.event_id = e.event_id and l.resolved_at is null)),
	c.expired, c.sends, c.unfinished, o.n, coalesce(o.oldest, '')
from (
	select count(*) filter (where expires_at <= ` + now + `) as expired,
		count(*) filter (where expires_at <= ` + now + ` and target is not null) as sends,
		count(*) filter (where expires_at > ` + now + `) as unfinished
	from processed_events where expires_at is not null and outcome is null
) c, (
	select count(*) as n, min(created_at) as oldest from outbox where sent_at is null and failed_at is null
) o`

const countLetters = `select kind, certainty, count(*), min(failed_at)
from failed_jobs where resolved_at is null group by kind, certainty order by kind, certainty`

// Status implements runner.History.
func (s *Store) Status(ctx context.Context) (runner.Status, error) {
	var st runner.Status
	err := s.do(ctx, "reading the status", s.patient(), func() (err error) {
		st, err = runner.LookTwice(func() (runner.Status, error) { return s.status(ctx) })
		return err
	})
	return st, err
}

func (s *Store) status(ctx context.Context) (runner.Status, error) {
	var st runner.Status
	if err := s.guard(ctx, s.db, nil); err != nil {
		return st, err
	}
	var at, oldest string
	var doubt, closed int
	err := s.db.QueryRowContext(ctx, countAll).Scan(&at, &doubt, &closed, &st.Expired, &st.ExpiredSends, &st.Unfinished, &st.Outbox.Count, &oldest)
	if err != nil {
		return st, err
	}
	st.At, st.Outbox.Oldest = parseTime(at), parseTime(oldest)
	st.InDoubt, st.InDoubtOpen = doubt+st.Expired, doubt-closed+st.Expired
	if st.Letters, err = s.countLetters(ctx); err != nil {
		return st, err
	}
	st.Locks, err = s.lockStates(ctx)
	return st, err
}

func (s *Store) countLetters(ctx context.Context) ([]runner.LetterCount, error) {
	rows, err := s.db.QueryContext(ctx, countLetters)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []runner.LetterCount
	for rows.Next() {
		var l runner.LetterCount
		var oldest string
		if err := rows.Scan(&l.Kind, &l.Certainty, &l.Count, &oldest); err != nil {
			return nil, err
		}
		l.Oldest = parseTime(oldest)
		out = append(out, l)
	}
	return out, rows.Err()
}

func (s *Store) lockStates(ctx context.Context) ([]runner.LockState, error) {
	rows, err := s.db.QueryContext(ctx, eachLock)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []runner.LockState
	for rows.Next() {
		var success string
		run, at, err := scanRun(rows, &success)
		if err != nil {
			return nil, err
		}
		out = append(out, runner.LockState{Lock: run.Lock, Last: run, LastSuccess: parseTime(success), Since: at})
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	// The locks are looked at after the rows: see runner.LookTwice.
	locks := s.heldLocks()
	for i := range out {
		l, at := &out[i], out[i].Since
		pid, held := locks.holder(l.Last)
		l.Held, l.Since = held, time.Time{}
		switch {
		case held && !l.Last.Finished():
			l.Holder, l.Since = l.Last.Host+"/"+strconv.Itoa(l.Last.PID), l.Last.StartedAt
		case held:
			l.Holder = fmt.Sprintf("process %d", pid)
		}
		settleRun(&l.Last, at, held)
	}
	return out, nil
}

// scanRun reads runColumns, and more behind them. A run without an end has no
// outcome yet: see settleRun.
func scanRun(r scanner, more ...any) (run runner.PastRun, at time.Time, err error) {
	var scheduled, started, finished, read string
	err = r.Scan(append([]any{&run.ID, &run.Lock.Name, &run.Lock.Key, &run.Key, &scheduled, &run.Host, &run.PID, &started,
		&finished, &run.Outcome, &run.ExitCode, &read}, more...)...)
	run.ScheduledAt, run.StartedAt, run.FinishedAt = parseTime(scheduled), parseTime(started), parseTime(finished)
	if run.Finished() {
		run.Took = run.FinishedAt.Sub(run.StartedAt)
	}
	return run, parseTime(read), err
}

// settleRun says what a run without an end is; held says that its lock is held,
// by it.
func settleRun(run *runner.PastRun, at time.Time, held bool) {
	switch {
	case run.Finished():
	case held:
		run.Outcome, run.Took = runner.RunRunning, at.Sub(run.StartedAt)
	default:
		run.Outcome = runner.RunUnknown
	}
}

const eachRun = `select ` + runColumns + `, r.finished_at is null
	and not exists (select 1 from runs n where n.lock_key = r.lock_key and n.id > r.id)
from runs r
where (?1 = '' or r.lock = ?1)
	and (?2 = '' or r.outcome = ?2 or r.finished_at is null and ?2 in ('running', 'unknown'))
	and (?3 is null or r.started_at >= `

// EachRun implements runner.History. It reads by a connection of its own, so
// that f may use the store.
func (s *Store) EachRun(ctx context.Context, filter runner.RunFilter, f func(runner.PastRun) error) error {
	db, err := openDB(s.path)
	if err != nil {
		return fmt.Errorf("reading runs: %w", err)
	}
	defer db.Close()
	var rows *sql.Rows
	err = s.do(ctx, "reading runs", s.patient(), func() (err error) {
		if err := s.guard(ctx, db, nil); err != nil {
			return err
		}
		rows, err = queryRuns(ctx, db, filter)
		return err
	})
	if err != nil {
		return err
	}
	defer rows.Close()
	for shown := 0; rows.Next() && (filter.Limit == 0 || shown < filter.Limit); {
		var latest bool
		run, at, err := scanRun(rows, &latest)
		if err == nil && !run.Finished() {
			run, err = s.surely(ctx, run, at, latest)
		}
		if err != nil {
			return fmt.Errorf("reading runs: %w", s.translate(err))
		}
		if filter.Outcome != "" && run.Outcome != filter.Outcome {
			continue
		}
		shown++
		if err := f(run); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading runs: %w", s.translate(err))
	}
	return nil
}

func queryRuns(ctx context.Context, db *sql.DB, filter runner.RunFilter) (*sql.Rows, error) {
	var since any
	if filter.Since > 0 {
		since = modifier(-filter.Since)
	}
	return db.QueryContext(ctx, eachRun+later("?3")+`) order by r.id desc`, filter.Lock, string(filter.Outcome), since)
}

// surely says what became of a run that had no end when its row was read. The
// latest of its lock may have ended before its lock was looked at, and is then
// read again.
func (s *Store) surely(ctx context.Context, run runner.PastRun, at time.Time, latest bool) (runner.PastRun, error) {
	_, held := s.heldLocks().holder(run)
	settleRun(&run, at, latest && held)
	if run.Outcome != runner.RunUnknown || !latest {
		return run, nil
	}
	again, _, err := scanRun(s.db.QueryRowContext(ctx, `select `+runColumns+` from runs r where id = ?1`, run.ID))
	settleRun(&again, at, false)
	return again, err
}
