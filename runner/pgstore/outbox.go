package pgstore

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// outboxLock serialises leases for the instant that one takes, so that each
// sees the leases before it: two transactions that began before either
// committed could else lease two rows of one key. No lock's name can be the
// same, since names have no control characters.
const outboxLock = "\x00outbox"

// planner keeps plans on the indexes and in their order, so that they end at
// their limits also where the tables' statistics are of yesterday. It spares the
// compiler for a statement of a few milliseconds.
const planner = `select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// takeable is the condition under which a row of the outbox may be published.
const takeable = `o.failed_at is null and (o.leased_until is null or o.leased_until <= now()) and ($3::text = '' or o.topic = $3::text)`

// runOf finds the first unsent rows of a key, from its first one on: what was
// sent before that, and is still kept for old transactions, is not read. Rows that have failed are passed
// over if they hold nobody up: with SkipFailed, or once a person has resolved
// their dead letters.
const runOf = `select o.id, ` + takeable + ` as ok from {s}.outbox o
	where o.key = k.key and o.id >= k.id and o.sent_at is null and not (o.failed_at is not null and ($5::boolean or not exists (
		select from {s}.failed_jobs f where f.event_id = 'outbox-' || o.id::text and f.kind = 'outbox' and f.resolved_at is null)))
	order by o.id`

// unkeyedRows are the first ones without a key.
const unkeyedRows = `unkeyed as materialized (
	select o.id from {s}.outbox o
	where o.sent_at is null and o.key is null and o.id > $6::bigint and ` + takeable + `
		and (select oldest_binary from info) <= $8::int
	order by o.key, o.id limit $2::int -- as outbox_keys has them
)`

// leaseOutbox picks and leases. Parameters: token, limit, topic, lease in
// microseconds, skip failed, from id, from key (null: all), this binary's
// schema version, run length.
//
// unkeyed and keys read no more of the indexes than they need: a recursive query
// is computed as far as heads' limit asks for it. keys steps from one key to the
// next, heads keeps those whose first row may go out now, and runs are the rows
// behind it up to one that may not. What another program has locked is passed
// over, and with it what is behind it in its key (firm). Rows are found by arrays
// of ids, which no plan turns round.
const leaseOutbox = `with recursive info as (select oldest_binary from {s}.schema_info),
` + unkeyedRows + `,
keys as (
	(select o.key, o.id from {s}.outbox o
		where o.sent_at is null and o.key is not null and ($7::text is null or o.key > $7::text)
			and (select oldest_binary from info) <= $8::int
		order by o.key, o.id limit 1)
	union all
	select n.key, n.id from keys k cross join lateral (
		select o.key, o.id from {s}.outbox o where o.sent_at is null and o.key > k.key order by o.key, o.id limit 1) n
),
heads as materialized (
	select k.key, k.id from keys k cross join lateral (` + runOf + ` limit 1) h
	where h.ok and (
		select true from {s}.outbox l
		where l.key = k.key and l.id >= k.id and l.sent_at is null and l.leased_until is not null and l.token is not null and l.leased_until > now()
		limit 1) is null
	limit $2::int
),
runs as (
	select k.key, r.id, r.pos from heads k cross join lateral (
		select u.id, row_number() over w as pos, bool_and(u.ok) over w as ok
		from (` + runOf + ` limit (select least($9::int, 1 + 2 * $2::int / greatest(count(*), 1)) from heads)) u window w as (order by u.id)
	) r where r.ok
),
cand as materialized (
	select id, null as key, 1 as pos from unkeyed
	union all select id, key, pos from runs
	order by pos, id limit $2::int
),
locked as materialized (
	select o.id from {s}.outbox o
	where o.id = any(array(select id from cand)) and o.sent_at is null and ` + takeable + ` for update of o skip locked
),
firm as (
	select c.id, bool_and(l.id is not null) over (partition by c.key, case when c.key is null then c.id end order by c.pos) as ok
	from cand c left join locked l on l.id = c.id
),
taken as (
	update {s}.outbox o set token = $1::uuid, leased_until = now() + $4::bigint * interval '1 microsecond',
		doubtful = o.doubtful or o.token is not null and o.leased_until is not null
	where o.id = any(array(select id from firm where ok))
	returning o.id, o.topic, o.key, o.payload, o.attempts, o.doubtful
)
select (select oldest_binary from info)::text, 'true', ((select count(*) from unkeyed) = $2::int)::text,
	((select count(*) from heads) = $2::int)::text, (select max(key) from heads), exists (select from keys)::text, null::bigint as n
union all
select id::text, topic, key, payload::text, attempts::text, doubtful::text, id from taken
order by n nulls first`

// leaseUnkeyed is leaseOutbox where there are no keys. It is a quarter as long, and
// most of what a lease of a few rows costs is reading and planning the
// statement. Parameters: token, limit, topic, lease in microseconds, from id,
// this binary's schema version.
var leaseUnkeyed = `with info as (select oldest_binary from {s}.schema_info),
` + replaceParam(replaceParam(unkeyedRows, "$6", "$5"), "$8", "$6") + `,
locked as materialized (
	select o.id from {s}.outbox o
	where o.id = any(array(select id from unkeyed)) and o.sent_at is null and ` + takeable + ` for update of o skip locked
),
taken as (
	update {s}.outbox o set token = $1::uuid, leased_until = now() + $4::bigint * interval '1 microsecond',
		doubtful = o.doubtful or o.token is not null and o.leased_until is not null
	where o.id = any(array(select id from locked))
	returning o.id, o.topic, o.key, o.payload, o.attempts, o.doubtful
)
select (select oldest_binary from info)::text, 'true', ((select count(*) from unkeyed) = $2::int)::text, 'false', null, 'false', null::bigint as n
union all
select id::text, topic, key, payload::text, attempts::text, doubtful::text, id from taken
order by n nulls first`

// peekOutbox is one statement, which writes nothing.
const peekOutbox = `select (select oldest_binary from {s}.schema_info)::text, 'true', exists (
	select from {s}.outbox o where o.sent_at is null and ` + takeable + `)::text`

// Lease implements runner.OutboxLeaser.
func (s *Store) Lease(ctx context.Context, l runner.OutboxLease) (rows []runner.OutboxRow, next runner.OutboxCursor, err error) {
	if l.Idle {
		if some, err := s.peek(ctx, l.Topic); err != nil || !some {
			return nil, next, err
		}
	}
	results, err := s.exec(ctx, runner.ClaimPatience, statement{sql: planner}, s.outboxTurn(), s.leaseStatement(l))
	if err != nil {
		return nil, next, fmt.Errorf("leasing rows of the outbox: %w", err)
	}
	head := results[2][0]
	if err := letIn(head); err != nil {
		return nil, next, err
	}
	for _, r := range results[2][1:] {
		rows = append(rows, readOutboxRow(r))
	}
	return rows, nextCursor(l.From, head, rows), nil
}

func (s *Store) leaseStatement(l runner.OutboxLease) statement {
	if l.From.Unkeyed {
		return statement{s.sql(leaseUnkeyed), []any{
			string(l.Token), l.Limit, l.Topic, l.For.Microseconds(), l.From.AfterID(), sqlschema.Version,
		}}
	}
	return statement{s.sql(leaseOutbox), []any{
		string(l.Token), l.Limit, l.Topic, l.For.Microseconds(), l.SkipFailed, l.From.AfterID(), orNull(l.From.Key),
		sqlschema.Version, min(l.Limit, runner.OutboxRunLength),
	}}
}

// outboxTurn waits for this transaction's turn at the leases.
func (s *Store) outboxTurn() statement {
	return statement{sql: "select pg_advisory_xact_lock(" + formatKey(runner.LockKey(s.config.Schema, outboxLock)) + ")"}
}

func (s *Store) peek(ctx context.Context, topic string) (some bool, err error) {
	err = s.do(ctx, func(ctx context.Context, c conn) error {
		st := statement{s.sql(replaceParam(peekOutbox, "$3", "$1")), []any{topic}}
		results, err := pipeline(ctx, c, st)
		if err != nil {
			return err
		}
		head := results[0][0]
		some = head.text(2) == "true"
		return letIn(head)
	})
	if err != nil {
		return false, fmt.Errorf("looking into the outbox: %w", err)
	}
	return some, nil
}

func readOutboxRow(r row) runner.OutboxRow {
	return runner.OutboxRow{
		ID: r.number(0), Topic: r.text(1), Key: r.text(2), Keyed: !r.null(2), Payload: r[3],
		Attempts: int(r.number(4)), Doubtful: r.text(5) == "true",
	}
}

// nextCursor is where to look on, for each of the two kinds of rows of which
// there was more than fits.
func nextCursor(from runner.OutboxCursor, head row, rows []runner.OutboxRow) (next runner.OutboxCursor) {
	if head.text(2) == "true" {
		next.ID = from.AfterID()
		for _, r := range rows {
			if !r.Keyed {
				next.ID = max(next.ID, r.ID)
			}
		}
		next.Unkeyed = from.Key == "" && head.text(5) == "false"
	}
	if head.text(3) == "true" {
		next.Key = head.text(4)
	}
	return next
}

const renewOutbox = `update {s}.outbox set leased_until = now() + $3::bigint * interval '1 microsecond'
where id = any($2::text[]::bigint[]) and token = $1::uuid and (sent_at is null) is not false and (leased_until is null) is not true
	and (select oldest_binary from {s}.schema_info) <= $4::int
returning id`

// RenewLeases implements runner.OutboxLeaser.
func (s *Store) RenewLeases(ctx context.Context, token runner.Token, ids []int64, d time.Duration) ([]int64, error) {
	results, err := s.exec(ctx, runner.ClaimPatience, statement{sql: planner},
		statement{s.sql(renewOutbox), []any{string(token), numbers(ids), d.Microseconds(), sqlschema.Version}})
	if err != nil {
		return nil, fmt.Errorf("renewing leases of the outbox: %w", err)
	}
	held := make([]int64, len(results[1]))
	for i, r := range results[1] {
		held[i] = r.number(0)
	}
	return held, nil
}

func numbers(ids []int64) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = strconv.FormatInt(id, 10)
	}
	return out
}

// markOutbox records what became of rows that were not sent. A sent or failed
// row keeps its token, so that a mark whose answer was lost finds its rows marked
// when it is tried again. Parameters: token, then arrays of ids, verdicts, delays in
// microseconds, whether the try counts, errors, doubts, then of dead letters
// hashes, whether the payload is kept, requests, attempts, certainties, retry
// times; and this binary's schema version.
const markOutbox = `with info as (select oldest_binary from {s}.schema_info),
input as (
	select u.id::bigint, u.verdict::int, u.after::bigint, u.counts::int, u.error, u.doubtful::boolean,
		nullif(u.hash, '') as hash, u.keep::boolean, nullif(u.request, '')::jsonb as request, u.attempts::int, u.certainty,
		nullif(u.retry_at, '')::timestamptz as retry_at
	from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
		$11::text[], $12::text[], $13::text[])
		as u(id, verdict, after, counts, error, doubtful, hash, keep, request, attempts, certainty, retry_at)
),
done as (
	update {s}.outbox o set
		failed_at = case when i.verdict = 2 then now() else o.failed_at end,
		leased_until = case when i.verdict = 1 then now() + i.after * interval '1 microsecond' end,
		token = case when i.verdict = 2 then o.token end,
		attempts = o.attempts + i.counts,
		doubtful = o.doubtful or i.doubtful,
		last_error = case when i.verdict = 3 then o.last_error else i.error end
	from input i
	where o.id = any($2::text[]::bigint[]) and o.id = i.id and o.token = $1::uuid and (o.sent_at is null) is not false
		and (o.leased_until is null) is not true -- so put, no plan takes an index of all that is unsent or leased
		and (select oldest_binary from info) <= $14::int
	returning o.id, o.topic, o.payload, i.verdict, i.error, i.hash, i.keep, i.request, i.attempts, i.certainty, i.retry_at
),
before as (
	update {s}.failed_jobs f set resolved_at = now(), resolution = 'tried again'
	from done d where d.verdict = 2 and f.event_id = 'outbox-' || d.id::text and f.kind = 'outbox' and f.resolved_at is null
		and f.event_id = any(array(select 'outbox-' || i.id::text from input i where i.verdict = 2))
),
letters as (
	insert into {s}.failed_jobs (kind, name, event_id, payload_hash, payload, request, last_error, attempts, certainty, retry_at)
	select 'outbox', topic, 'outbox-' || id::text, hash, case when keep then convert_to(payload::text, 'UTF8') end, request, error,
		attempts, certainty, retry_at
	from done where verdict = 2
)
select (select oldest_binary from info)::text, 'true'
union all select id::text, null from done
union all select o.id::text, null from input i join {s}.outbox o on o.id = i.id
	where o.id = any($2::text[]::bigint[]) and o.token = $1::uuid and o.leased_until is null
		and i.verdict = 2 and o.sent_at is null and o.failed_at is not null`

// markSent is markOutbox for what was sent, which most rows are. Parameters:
// token, ids, event ids, this binary's schema version.
const markSent = `with info as (select oldest_binary from {s}.schema_info),
done as (
	update {s}.outbox o set sent_at = now(), failed_at = null, leased_until = null, attempts = o.attempts + 1, last_error = null
	where o.id = any($2::text[]::bigint[]) and o.token = $1::uuid and (o.sent_at is null) is not false
		and (o.leased_until is null) is not true and (select oldest_binary from info) <= $4::int
	returning o.id
),
before as (
	update {s}.failed_jobs f set resolved_at = now(), resolution = 'delivered'
	where f.event_id = any($3::text[]) and f.kind = 'outbox' and f.resolved_at is null
		and f.event_id in (select 'outbox-' || id::text from done)
)
select (select oldest_binary from info)::text, 'true'
union all select id::text, null from done
union all select o.id::text, null from {s}.outbox o
	where o.id = any($2::text[]::bigint[]) and o.token = $1::uuid and o.sent_at is not null
		and (select count(*) from done) < cardinality($2::text[])`

// Mark implements runner.OutboxMarker.
func (s *Store) Mark(ctx context.Context, token runner.Token, marks []runner.OutboxMark) ([]bool, error) {
	owned := make([]bool, len(marks))
	if len(marks) == 0 {
		return owned, nil
	}
	stmts, err := s.markStatements(token, marks)
	if err != nil {
		return nil, err
	}
	results, err := s.exec(ctx, runner.ClaimPatience, stmts...)
	if err != nil {
		return nil, fmt.Errorf("marking rows of the outbox: %w", err)
	}
	mine := map[string]bool{}
	for _, rows := range results[1:] {
		if err := letIn(rows[0]); err != nil {
			return nil, err
		}
		maps.Copy(mine, byID(rows[1:]))
	}
	for i, m := range marks {
		owned[i] = mine[strconv.FormatInt(m.ID, 10)]
	}
	return owned, nil
}

// markStatements are a mark's transaction, of which the first has no answer.
func (s *Store) markStatements(token runner.Token, marks []runner.OutboxMark) ([]statement, error) {
	stmts := []statement{{sql: planner}}
	var ids, events []string
	var others []runner.OutboxMark
	for _, m := range marks {
		if m.Verdict != runner.OutboxSent {
			others = append(others, m)
			continue
		}
		ids, events = append(ids, strconv.FormatInt(m.ID, 10)), append(events, string(runner.OutboxEventID(m.ID)))
	}
	if len(ids) > 0 {
		stmts = append(stmts, statement{s.sql(markSent), []any{string(token), ids, events, sqlschema.Version}})
	}
	if len(others) > 0 {
		args, err := markArgs(token, others)
		if err != nil {
			return nil, err
		}
		stmts = append(stmts, statement{s.sql(markOutbox), args})
	}
	return stmts, nil
}

// markArgs turns marks into the statement's arrays.
func markArgs(token runner.Token, marks []runner.OutboxMark) ([]any, error) {
	var columns [12][]string
	for _, m := range marks {
		letter := runner.DeadLetter{Certainty: runner.Failed}
		if err := m.Check(); err != nil {
			return nil, err
		}
		if m.Verdict == runner.OutboxDead {
			letter = *m.DeadLetter
		}
		retryAt := ""
		if !letter.RetryAt.IsZero() {
			retryAt = letter.RetryAt.UTC().Format(time.RFC3339Nano)
		}
		for i, v := range [...]string{
			strconv.FormatInt(m.ID, 10), strconv.Itoa(int(m.Verdict)), strconv.FormatInt(m.After.Microseconds(), 10), strconv.Itoa(m.Counted()),
			runner.KeptText(m.LastError), strconv.FormatBool(m.Doubtful), letter.PayloadHash, strconv.FormatBool(letter.Payload != nil),
			string(letter.Request), strconv.Itoa(letter.Attempts), string(letter.Certainty), retryAt,
		} {
			columns[i] = append(columns[i], v)
		}
	}
	args := []any{string(token)}
	for _, c := range columns {
		args = append(args, c)
	}
	return append(args, sqlschema.Version), nil
}
