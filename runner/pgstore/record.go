package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// serverNow tells the server's process from one that was restarted, and its
// timeline from that of a standby that was promoted.
const serverNow = `extract(epoch from pg_postmaster_start_time())::text || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)`

// beginRun records a run and makes it the owner of its lock's fence. The lock is
// held, so that nobody else begins a run of it meanwhile; the update of the
// fence waits for claims of the run before that are still under way, and those
// that come later find another token. The wait for an unfinished run goes into
// the fence, so that it outlives a waiter; what was left of one before is
// answered. Behind a pooler this runs on another session than the lock's, after
// lockFence, and only while that session has the lock. Parameters: lock, key of
// the lock, key, scheduled_at, token, host, host_id, pid, this binary's schema
// version, the lock's server process (0: this one), and the seconds to wait for
// an unfinished run where the server is the same and where it is another.
const beginRun = `with info as (select oldest_binary from {s}.schema_info),
held as (
	select $10::int = 0 or exists (
		select from pg_catalog.pg_locks l where ` + grantedKeys + ` and l.pid = $10::int and ` + lockKey + ` = $2::bigint
	) as ok
),
mine as (select id, started_at from {s}.runs where lock_key = $2::bigint and token = $5::uuid),
done as (
	select 1 from {s}.runs where lock_key = $2::bigint and key = $3::text and outcome = 'succeeded' and token <> $5::uuid limit 1
),
before as (
	select *, server is distinct from ` + serverNow + ` as changed
	from {s}.runs where lock_key = $2::bigint and token <> $5::uuid order by id desc limit 1
),
new as (
	insert into {s}.runs (lock, lock_key, key, scheduled_at, token, host, host_id, pid, server)
	select $1::text, $2::bigint, $3::text, $4::timestamptz, $5::uuid, $6::text, $7::text, $8::int, ` + serverNow + `
	where not exists (select from mine) and not exists (select from done)
	and (select oldest_binary from info) <= $9::int and (select ok from held)
	returning id, started_at
),
owner as (
	insert into {s}.fences as f (lock_key, run_id, token, not_before)
	select $2::bigint, id, $5::uuid, (
		select now() + make_interval(secs => case when changed then $12::float8 else $11::float8 end)
		from before where finished_at is null
	) from new
	on conflict (lock_key) do update set run_id = excluded.run_id, token = excluded.token,
		not_before = greatest(f.not_before, excluded.not_before)
	returning f.run_id
),
it as (select id, started_at from new union all select id, started_at from mine)
select (select oldest_binary from info)::text, 'true', (select count(*) from owner),
	exists (select from done), (select id from it), (select (extract(epoch from started_at) * 1000000)::bigint from it),
	p.id, p.key, p.token::text, p.host, p.host_id, p.pid, (extract(epoch from p.scheduled_at) * 1000000)::bigint,
	(extract(epoch from p.started_at) * 1000000)::bigint, p.finished_at is null, p.changed,
	(select (extract(epoch from not_before - now()) * 1000000)::bigint from {s}.fences where lock_key = $2::bigint),
	(select ok from held), exists (select from {s}.processed_events where ` + deadSend + `)
from (select 1) one left join before p on true`

// lockFence locks the lock's row in fences, or makes it, for a Begin on another
// session than the lock's: one that comes late, after its lock was lost, then
// looks for the lock when a new holder's Begin is either over, or waits for
// this transaction and overwrites what it wrote.
const lockFence = `insert into {s}.fences (lock_key, run_id, token) values ($1::bigint, 0, '00000000-0000-0000-0000-000000000000')
	on conflict (lock_key) do update set lock_key = excluded.lock_key`

// recordTimeout bounds how long the record waits for a claim of the run before
// that is under way; such a claim gives up after ClaimPatience.
const recordTimeout = 2 * runner.ClaimPatience

// Begin implements runner.Recorder.
func (h *held) Begin(ctx context.Context, req runner.BeginRequest) (runner.Begun, error) {
	r, err := h.beginRow(ctx, h.beginStatements(req)...)
	if err != nil {
		return runner.Begun{}, err
	}
	if err := letIn(r); err != nil {
		return runner.Begun{}, err
	}
	switch {
	case r.bool(3):
		return runner.Begun{}, runner.ErrDone
	case !r.bool(17):
		return runner.Begun{}, runner.ErrLockLost
	}
	b := runner.Begun{Run: runner.Run{
		ID: r.number(4), Lock: h.id, Key: req.Key, Token: req.Token, Host: req.Host, PID: req.PID,
		ScheduledAt: req.ScheduledAt, StartedAt: r.time(5),
	}, ExpiredSends: r.bool(18)}
	if !r.null(6) && r.bool(14) {
		b.Predecessor = h.predecessor(r[6:])
		b.ServerChanged = r.bool(15)
	}
	if !r.null(16) {
		b.Wait = max(0, time.Duration(r.number(16))*time.Microsecond)
	}
	return b, nil
}

// beginStatements are the statements of Begin; beginRun is the last one.
func (h *held) beginStatements(req runner.BeginRequest) []statement {
	var first []statement
	process := int64(0)
	if _, ok := h.claims.(*pooled); ok {
		process = h.lease.backend
		first = []statement{{h.store.sql(lockFence), []any{h.id.Key}}}
	}
	return append(first, statement{h.store.sql(beginRun), []any{
		h.id.Name, h.id.Key, orNull(req.Key), req.ScheduledAt, string(req.Token), req.Host.Name, orNull(req.Host.ID), req.PID,
		sqlschema.Version, process, int(runner.HandoverWait.Seconds()), int(runner.RestartWait.Seconds()),
	}})
}

func (h *held) predecessor(r row) *runner.Run {
	return &runner.Run{
		ID: r.number(0), Lock: h.id, Key: r.text(1), Token: runner.Token(r.text(2)), Host: runner.Host{Name: r.text(3), ID: r.text(4)},
		PID: int(r.number(5)), ScheduledAt: r.time(6), StartedAt: r.time(7),
	}
}

// beginRow runs the statements, and makes the tables where they are missing.
func (h *held) beginRow(ctx context.Context, stmts ...statement) (row, error) {
	results, err := h.record(ctx, stmts...)
	if isMissing(err) {
		if err := h.store.do(ctx, h.store.makeTables); err != nil {
			return nil, err
		}
		results, err = h.record(ctx, stmts...)
	}
	if err != nil {
		return nil, h.store.translate(err)
	}
	return results[len(results)-1][0], nil
}

// record runs statements of the record in a transaction of their own: on the
// lock's session, or on the second connection.
func (h *held) record(ctx context.Context, stmts ...statement) (results [][]row, err error) {
	if p, ok := h.claims.(*pooled); ok {
		return p.exec(ctx, recordTimeout, stmts...)
	}
	err = h.lease.do(ctx, func(ctx context.Context) error {
		results, err = transact(ctx, h.lease.conn, recordTimeout, stmts...)
		return err
	})
	return results, err
}

// Sweep implements runner.Sweeper, the lock's own way: behind a pooler a third
// connection might not be had.
func (h *held) Sweep(ctx context.Context) (int, error) {
	results, err := h.record(ctx, statement{h.store.sql(sweep), []any{sqlschema.Version}})
	if err != nil {
		return 0, h.store.translate(err)
	}
	return readCount(results)
}

// fenceIsOurs finds the fence as the run left it. A lost lock may ask as well:
// the answer "no" is final, and "yes" is worth something under a lock only.
const fenceIsOurs = `select 1 from {s}.fences where lock_key = $1::bigint and run_id = $2::bigint and token = $3::uuid`

// Resume implements runner.Recorder. Where the lock's own way is gone it takes
// the store's connection.
func (h *held) Resume(ctx context.Context, run runner.Run) error {
	st := statement{h.store.sql(fenceIsOurs), []any{h.id.Key, run.ID, string(run.Token)}}
	results, err := h.record(ctx, st)
	if errors.Is(err, runner.ErrLockLost) {
		results, err = h.store.exec(ctx, recordTimeout, st)
	}
	if err != nil {
		return h.store.translate(err)
	}
	if len(results[0]) == 0 {
		return runner.ErrFenced
	}
	return nil
}

// endRun records the end once; a dead letter goes with it or not at all. Where
// the job was started, the wait before it was over.
const endRun = `with ended as (
	update {s}.runs set finished_at = now(), outcome = $3::text, exit_code = $4::int
	where id = $1::bigint and token = $2::uuid and finished_at is null
	returning id
),
over as (
	update {s}.fences set not_before = null
	where lock_key = $15::bigint and token = $2::uuid and not_before is not null and $16::boolean
)
insert into {s}.failed_jobs (kind, name, event_id, payload_hash, payload, request, last_error, attempts, certainty, retry_at)
select $5::text, $6::text, $7::text, $8::text, $9::bytea, $10::jsonb, $11::text, $12::int, $13::text, $14::timestamptz
from ended where $5::text is not null`

// withdrawRun forgets a run that was skipped after all. The fence keeps its
// token, and with it what is left of the wait.
const withdrawRun = `delete from {s}.runs where id = $1::bigint and token = $2::uuid and finished_at is null`

// Finish implements runner.Recorder. Where the lock's own way is gone it takes
// the store's connection.
func (h *held) Finish(ctx context.Context, run runner.Run, end runner.RunEnd) error {
	args := []any{run.ID, string(run.Token), string(end.Outcome), end.ExitCode}
	if end.DeadLetter != nil {
		args = append(args, letterArgs(*end.DeadLetter)...)
	} else {
		args = append(args, make([]any, 10)...)
	}
	args = append(args, h.id.Key, end.Started)
	st := statement{h.store.sql(endRun), args}
	if end.Outcome == runner.RunSkipped {
		st = statement{h.store.sql(withdrawRun), args[:2]}
	}
	_, err := h.record(ctx, st)
	if err == nil {
		return nil
	}
	if !errors.Is(err, runner.ErrLockLost) && sqlState(err) != "" && !isTransient(err) {
		return h.store.translate(err)
	}
	_, err = h.store.exec(ctx, recordTimeout, st)
	return err
}
