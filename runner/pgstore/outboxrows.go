package pgstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

const addToOutbox = `with info as (select oldest_binary from {s}.schema_info),
again as (
	select id from {s}.outbox where token = $4::uuid and token is not null and leased_until is null and sent_at is null
),
added as (
	insert into {s}.outbox (topic, key, payload, token)
	select $1::text, $2::text, $3::jsonb, $4::uuid
	where (select oldest_binary from info) <= $5::int and not exists (select from again)
	returning id
)
select (select oldest_binary from info)::text, 'true', coalesce((select id from again), (select id from added))`

// AddToOutbox implements runner.OutboxAdder.
func (s *Store) AddToOutbox(ctx context.Context, e runner.OutboxEntry) (int64, error) {
	return s.addToOutbox(ctx, s, e)
}

// AddToOutbox implements runner.OutboxAdder, on the run's own connection.
func (h *held) AddToOutbox(ctx context.Context, e runner.OutboxEntry) (int64, error) {
	return h.store.addToOutbox(ctx, h, e)
}

func (s *Store) addToOutbox(ctx context.Context, ex executor, e runner.OutboxEntry) (int64, error) {
	if err := e.Check(); err != nil {
		return 0, err
	}
	results, err := ex.exec(ctx, runner.ClaimPatience, statement{s.sql(addToOutbox),
		[]any{e.Topic, orNull(e.Key), string(e.Payload), string(e.Token), sqlschema.Version}})
	if err != nil {
		return 0, fmt.Errorf("adding to the outbox: %w", err)
	}
	r := results[0][0]
	if err := letIn(r); err != nil {
		return 0, err
	}
	return r.number(2), nil
}

// replaceParam renames a parameter of a fragment that statements share.
func replaceParam(sql, from, to string) string { return strings.ReplaceAll(sql, from, to) }

// leaseFailed leases one failed row, if nobody is publishing it or its key.
const leaseFailed = `with info as (select oldest_binary from {s}.schema_info),
found as (
	select o.id, o.leased_until > now() or exists (
		select from {s}.outbox l
		where l.key = o.key and l.sent_at is null and l.leased_until is not null and l.token is not null and l.leased_until > now()) as busy
	from {s}.outbox o where o.id = $2::bigint and o.sent_at is null and o.failed_at is not null for update of o
),
taken as (
	update {s}.outbox o set token = $1::uuid, leased_until = now() + $3::bigint * interval '1 microsecond',
		doubtful = o.doubtful or o.token is not null and o.leased_until is not null
	from found f where o.id = f.id and f.busy is not true and (select oldest_binary from info) <= $4::int
	returning o.id, o.topic, o.key, o.payload, o.attempts, o.doubtful
)
select (select oldest_binary from info)::text, 'true', (select busy is true from found)::text, null, null, null
union all
select id::text, topic, key, payload::text, attempts::text, doubtful::text from taken`

// LeaseFailed implements runner.OutboxReviver.
func (s *Store) LeaseFailed(ctx context.Context, id int64, token runner.Token, d time.Duration) (runner.OutboxRow, error) {
	results, err := s.exec(ctx, runner.ClaimPatience, statement{sql: planner}, s.outboxTurn(),
		statement{s.sql(leaseFailed), []any{string(token), id, d.Microseconds(), sqlschema.Version}})
	if err != nil {
		return runner.OutboxRow{}, fmt.Errorf("leasing row %d of the outbox: %w", id, err)
	}
	rows := results[2]
	if err := letIn(rows[0]); err != nil {
		return runner.OutboxRow{}, err
	}
	switch {
	case len(rows) > 1:
		return readOutboxRow(rows[1]), nil
	case rows[0].text(2) == "true":
		return runner.OutboxRow{}, fmt.Errorf("row %d of the outbox: %w", id, runner.ErrOutboxLeased)
	}
	return runner.OutboxRow{}, fmt.Errorf("row %d: %w", id, runner.ErrNoOutboxRow)
}

const putBack = `with back as (
	update {s}.outbox set failed_at = null, attempts = 0, leased_until = null, token = null
	where id = $1::bigint and sent_at is null and failed_at is not null and (leased_until is null or leased_until <= now())
		and (select oldest_binary from {s}.schema_info) <= $2::int
	returning id
),
letters as (
	update {s}.failed_jobs f set resolved_at = now(), resolution = 'put back into the outbox'
	from back where f.event_id = 'outbox-' || back.id::text and f.kind = 'outbox' and f.resolved_at is null
)
select id from back`

// PutBack implements runner.OutboxReviver.
func (s *Store) PutBack(ctx context.Context, id int64) error {
	results, err := s.exec(ctx, runner.ClaimPatience, statement{s.sql(putBack), []any{id, sqlschema.Version}})
	switch {
	case err != nil:
		return fmt.Errorf("putting back row %d of the outbox: %w", id, err)
	case len(results[0]) == 0:
		return fmt.Errorf("row %d: %w", id, runner.ErrNoOutboxRow)
	}
	return nil
}

const backlog = `select (select oldest_binary from {s}.schema_info)::text, 'true',
	count(*) filter (where failed_at is null),
	(extract(epoch from min(created_at) filter (where failed_at is null)) * 1000000)::bigint,
	(extract(epoch from now() - min(created_at) filter (where failed_at is null)) * 1000000)::bigint,
	count(*) filter (where failed_at is not null)
from {s}.outbox where sent_at is null and ($1::text = '' or topic = $1::text)`

// Backlog implements runner.OutboxReader.
func (s *Store) Backlog(ctx context.Context, topic string) (runner.OutboxBacklog, error) {
	results, err := s.exec(ctx, 0, statement{sql: planner}, statement{s.sql(backlog), []any{topic}})
	if err != nil {
		return runner.OutboxBacklog{}, fmt.Errorf("counting the outbox: %w", err)
	}
	r := results[1][0]
	if err := letIn(r); err != nil {
		return runner.OutboxBacklog{}, err
	}
	return runner.OutboxBacklog{
		Pending: r.number(2), Oldest: r.time(3), Age: time.Duration(r.number(4)) * time.Microsecond, Failed: r.number(5),
	}, nil
}
