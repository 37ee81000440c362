package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// runColumns are those of a runner.PastRun; times and the duration, which is up
// to now for a run without an end, in microseconds.
const runColumns = `r.id, r.lock, r.lock_key, r.key, (extract(epoch from r.scheduled_at) * 1000000)::bigint, r.host, r.pid,
	(extract(epoch from r.started_at) * 1000000)::bigint, (extract(epoch from r.finished_at) * 1000000)::bigint, r.outcome, r.exit_code,
	(extract(epoch from coalesce(r.finished_at, now()) - r.started_at) * 1000000)::bigint`

const runColumnCount = 12

// heldKeys lists who holds which advisory locks in this database.
const heldKeys = `held as materialized (
	select ` + lockKey + ` as key, min(l.pid) as pid
	from pg_catalog.pg_locks l
	where ` + grantedKeys + `
		and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
	group by 1
)`

// eachLock shows the latest run of each lock. It steps along runs_lock from one
// key to the next, and reads two rows of each: however many runs there are, it
// takes as long as there are locks. Rows are found by "<=" and not by "=", since
// the planner would take the latter for leave to walk back along all runs until
// it meets one of the lock.
const eachLock = `with recursive keys as (
	(select r.lock_key from {s}.runs r order by r.lock_key limit 1)
	union all
	select (select r.lock_key from {s}.runs r where r.lock_key > k.lock_key order by r.lock_key limit 1)
	from keys k where k.lock_key is not null
), ` + heldKeys + `
select ` + runColumns + `, h.pid, a.application_name, (extract(epoch from s.finished_at) * 1000000)::bigint
from keys k
cross join lateral (select * from {s}.runs where lock_key <= k.lock_key order by lock_key desc, id desc limit 1) r
left join lateral (
	select lock_key, finished_at from {s}.runs
	where lock_key <= k.lock_key and outcome = 'succeeded' order by lock_key desc, id desc limit 1
) s on s.lock_key = k.lock_key
left join held h on h.key = k.lock_key
left join pg_catalog.pg_stat_activity a on a.pid = h.pid
where k.lock_key is not null
order by r.lock, r.id`

// countAll counts by partial indexes. An event in doubt is closed where a
// person has resolved its dead letters.
const countAll = `select (select oldest_binary from {s}.schema_info)::text, 'true', (extract(epoch from now()) * 1000000)::bigint,
	(select count(*) from {s}.processed_events where outcome = 'in_doubt'),
	(select count(*) from {s}.processed_events e where outcome = 'in_doubt'
		and exists (select from {s}.failed_jobs l where l.event_id = e.event_id and l.resolved_at is not null)
		and not exists (select from {s}.failed_jobs l where l.event_id = e.event_id and l.resolved_at is null)),
	c.expired, c.sends, c.unfinished, o.n, (extract(epoch from o.oldest) * 1000000)::bigint
from (
	select count(*) filter (where expires_at <= now()) as expired,
		count(*) filter (where expires_at <= now() and target is not null) as sends,
		count(*) filter (where expires_at > now()) as unfinished
	from {s}.processed_events where expires_at is not null and outcome is null
) c, (
	select count(*) as n, min(created_at) as oldest from {s}.outbox where sent_at is null and failed_at is null
) o`

const countLetters = `select kind, certainty, count(*), (extract(epoch from min(failed_at)) * 1000000)::bigint
from {s}.failed_jobs where resolved_at is null group by kind, certainty order by kind, certainty`

// onIndexes keeps plans on the indexes whatever the tables' statistics say.
const onIndexes = `select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`

// Status implements runner.History.
func (s *Store) Status(ctx context.Context) (runner.Status, error) {
	st, err := runner.LookTwice(func() (runner.Status, error) { return s.status(ctx) })
	if err != nil {
		return st, fmt.Errorf("reading the status: %w", err)
	}
	return st, nil
}

func (s *Store) status(ctx context.Context) (runner.Status, error) {
	results, err := s.exec(ctx, 0, statement{sql: onIndexes},
		statement{sql: s.sql(countAll)}, statement{sql: s.sql(countLetters)}, statement{sql: s.sql(eachLock)})
	if err != nil {
		return runner.Status{}, err
	}
	r := results[1][0]
	if err := letIn(r); err != nil {
		return runner.Status{}, err
	}
	expired := int(r.number(5))
	st := runner.Status{
		At: r.time(2), InDoubt: int(r.number(3)) + expired, InDoubtOpen: int(r.number(3)-r.number(4)) + expired,
		Expired: expired, ExpiredSends: int(r.number(6)), Unfinished: int(r.number(7)),
		Outbox: runner.Backlog{Count: int(r.number(8)), Oldest: r.time(9)},
	}
	for _, r := range results[2] {
		st.Letters = append(st.Letters, runner.LetterCount{
			Kind: runner.Kind(r.text(0)), Certainty: runner.Outcome(r.text(1)), Count: int(r.number(2)), Oldest: r.time(3),
		})
	}
	for _, r := range results[3] {
		st.Locks = append(st.Locks, readLockState(r))
	}
	return st, nil
}

// readLockState reads a row of eachLock.
func readLockState(r row) runner.LockState {
	h := r[runColumnCount:]
	held := !h.null(0)
	l := runner.LockState{Last: readPastRun(r, held), Held: held, LastSuccess: h.time(2)}
	l.Lock = l.Last.Lock
	switch {
	case held && !l.Last.Finished():
		l.Holder, l.Since = l.Last.Host+"/"+strconv.Itoa(l.Last.PID), l.Last.StartedAt
	case held:
		l.Holder = fmt.Sprintf("server process %s %s", h.text(0), strconv.Quote(h.text(1)))
	}
	return l
}

// readPastRun reads runColumns; held says that the run's lock is held, by it if
// it has no end.
func readPastRun(r row, held bool) runner.PastRun {
	run := runner.PastRun{
		ID: r.number(0), Lock: runner.LockID{Name: r.text(1), Key: r.number(2)}, Key: r.text(3), ScheduledAt: r.time(4),
		Host: r.text(5), PID: int(r.number(6)), StartedAt: r.time(7), FinishedAt: r.time(8),
		Outcome: runner.RunOutcome(r.text(9)), ExitCode: int(r.number(10)), Took: time.Duration(r.number(11)) * time.Microsecond,
	}
	switch {
	case run.Finished():
	case held:
		run.Outcome = runner.RunRunning
	default:
		run.Outcome, run.Took = runner.RunUnknown, 0
	}
	return run
}

// eachRun lists runs, latest first. A run without an end goes on if it is the
// latest of its lock and the lock is held. Parameters: lock, outcome, age in
// microseconds, limit (0: none), only the run of this id (0: any).
const eachRun = `with ` + heldKeys + `
select i.oldest_binary, r.latest, r.latest and r.lock_key in (select key from held), ` + runColumns + `
from {s}.schema_info i left join lateral (
	select r.*, r.finished_at is null
		and not exists (select from {s}.runs n where n.lock_key = r.lock_key and n.id > r.id) as latest
	from {s}.runs r
	where ($1::text = '' or r.lock = $1::text)
		and ($2::text = '' or r.outcome = $2::text or r.finished_at is null and $2::text in ('running', 'unknown'))
		and ($3::bigint = 0 or r.started_at >= now() - $3::bigint * interval '1 microsecond')
		and ($5::bigint = 0 or r.id = $5::bigint)
	order by r.id desc limit nullif($4::bigint, 0)
) r on true
order by r.id desc`

// EachRun implements runner.History. Like EachClaim, it has a connection of its
// own.
func (s *Store) EachRun(ctx context.Context, filter runner.RunFilter, f func(runner.PastRun) error) error {
	limit := filter.Limit
	unended := filter.Outcome == runner.RunRunning || filter.Outcome == runner.RunUnknown
	if unended {
		limit = 0 // which of them it is, is known here only
	}
	st := statement{s.sql(eachRun), []any{filter.Lock, string(filter.Outcome), microseconds(filter.Since), limit, 0}}
	shown := 0
	return s.stream(ctx, st, func(r row) error {
		if err := notFor(int(r.number(0))); err != nil || r.null(3) {
			return err
		}
		run, err := s.surely(ctx, r)
		switch {
		case err != nil:
			return errCallback{err}
		case unended && run.Outcome != filter.Outcome, filter.Limit > 0 && shown == filter.Limit:
			return nil
		}
		shown++
		if err := f(run); err != nil {
			return errCallback{err}
		}
		return nil
	})
}

// microseconds is d as statements take it, of which 0 means none: what is shorter
// than one counts as one.
func microseconds(d time.Duration) int64 {
	if d > 0 {
		return max(1, d.Microseconds())
	}
	return 0
}

// surely is the run in a row of eachRun. One that may have ended while we looked
// is read again: see runner.LookTwice.
func (s *Store) surely(ctx context.Context, r row) (runner.PastRun, error) {
	run := readPastRun(r[3:], r.bool(2))
	if run.Outcome != runner.RunUnknown || !r.bool(1) {
		return run, nil
	}
	results, err := s.exec(ctx, 0, statement{s.sql(eachRun), []any{"", "", 0, 0, run.ID}})
	if err != nil || results[0][0].null(3) {
		return run, err
	}
	return readPastRun(results[0][0][3:], results[0][0].bool(2)), nil
}
