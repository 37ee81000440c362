package pgstore

import (
	"context"
	"strings"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

const letterColumns = `l.id, l.kind, l.name, l.event_id, l.payload_hash, l.request::text, l.last_error, l.attempts, l.certainty,
	(extract(epoch from l.failed_at) * 1000000)::bigint, (extract(epoch from l.retry_at) * 1000000)::bigint,
	(extract(epoch from l.resolved_at) * 1000000)::bigint, l.resolution`

// eachLetter lists dead letters. Parameters: kind, name, age in microseconds,
// resolved ones too, only due ones.
const eachLetter = `select i.oldest_binary, ` + letterColumns + `
from {s}.schema_info i left join {s}.failed_jobs l
on ($4::boolean or l.resolved_at is null)
	and ($1::text = '' or l.kind = $1::text) and ($2::text = '' or l.name = $2::text)
	and ($3::bigint = 0 or l.failed_at >= now() - $3::bigint * interval '1 microsecond')
	and (not $5::boolean or l.retry_at <= now())
order by l.id`

// EachDeadLetter implements runner.DeadLetters.
func (s *Store) EachDeadLetter(ctx context.Context, filter runner.DeadLetterFilter, f func(runner.DeadLetter) error) error {
	st := statement{s.sql(eachLetter), []any{string(filter.Kind), runner.KeptText(filter.Name), filter.Since.Microseconds(), filter.All, filter.Due}}
	return s.stream(ctx, st, func(r row) error {
		if err := notFor(int(r.number(0))); err != nil || r.null(1) {
			return err
		}
		if err := f(readLetter(r[1:])); err != nil {
			return errCallback{err}
		}
		return nil
	})
}

func readLetter(r row) runner.DeadLetter {
	d := runner.DeadLetter{
		ID: r.number(0), Kind: runner.Kind(r.text(1)), Name: r.text(2), EventID: runner.EventID(r.text(3)), PayloadHash: r.text(4),
		LastError: r.text(6), Attempts: int(r.number(7)), Certainty: runner.Outcome(r.text(8)), FailedAt: r.time(9), RetryAt: r.time(10),
		ResolvedAt: r.time(11), Resolution: r.text(12),
	}
	if !r.null(5) {
		d.Request = []byte(strings.Clone(r.text(5)))
	}
	return d
}

// oneLetter always has a row, which tells the oldest binary.
const oneLetter = `select i.oldest_binary, ` + letterColumns + `, encode(l.payload, 'hex')
from {s}.schema_info i left join {s}.failed_jobs l on l.id = $1::bigint`

// DeadLetter implements runner.DeadLetters.
func (s *Store) DeadLetter(ctx context.Context, id int64) (runner.DeadLetter, error) {
	results, err := s.exec(ctx, 0, statement{s.sql(oneLetter), []any{id}})
	if err != nil {
		return runner.DeadLetter{}, err
	}
	if len(results[0]) == 0 {
		return runner.DeadLetter{}, runner.ErrNoDeadLetter
	}
	r := results[0][0]
	if err := notFor(int(r.number(0))); err != nil {
		return runner.DeadLetter{}, err
	}
	if r.null(1) {
		return runner.DeadLetter{}, runner.ErrNoDeadLetter
	}
	d := readLetter(r[1:])
	if !r.null(14) {
		d.Payload, err = decodeHex(r[14])
	}
	return d, err
}

// resolve marks one dead letter. Parameters: id, resolution, this binary's
// schema version.
const resolve = `with info as (select oldest_binary from {s}.schema_info),
done as (
	update {s}.failed_jobs set resolved_at = now(), resolution = $2::text
	where id = $1::bigint and resolved_at is null and (select oldest_binary from info) <= $3::int
	returning 1
)
select (select oldest_binary from info)::text, 'true', (select count(*) from done)`

// Resolve implements runner.DeadLetters.
func (s *Store) Resolve(ctx context.Context, id int64, resolution string) (bool, error) {
	n, err := s.count(ctx, statement{s.sql(resolve), []any{id, runner.KeptText(resolution), sqlschema.Version}})
	return n == 1, err
}

// count runs a statement that answers with letIn's row and a number.
func (s *Store) count(ctx context.Context, st statement) (int, error) {
	results, err := s.exec(ctx, 0, st)
	if err != nil {
		return 0, err
	}
	return readCount(results)
}

func readCount(results [][]row) (int, error) {
	r := results[0][0]
	if err := letIn(r); err != nil {
		return 0, err
	}
	return int(r.number(2)), nil
}

// deadSend is the condition of a send whose sender died.
const deadSend = `outcome is null and expires_at <= now() and target is not null`

// sweep makes dead letters of sends whose sender died. It passes over rows that
// somebody else is changing, and the update's own condition makes a row that
// was settled meanwhile stay as it is. The new letter takes the place of those
// that the event had; of the latest with the same payload it keeps what a sweep
// cannot know. Parameter: this binary's schema version.
const sweep = `with info as (select oldest_binary from {s}.schema_info),
dead as (
	select event_id from {s}.processed_events
	where ` + deadSend + ` and (select oldest_binary from info) <= $1::int
	order by event_id for update skip locked
),
doubtful as (
	update {s}.processed_events e set outcome = 'in_doubt', finished_at = now()
	from dead where e.event_id = dead.event_id and e.outcome is null and e.expires_at <= now()
	returning e.event_id, e.target, e.payload_hash, e.owner
),
before as (
	select distinct on (l.event_id) l.event_id, l.payload, l.request
	from {s}.failed_jobs l join doubtful using (event_id, payload_hash)
	where l.resolved_at is null and l.kind = 'send'
	order by l.event_id, l.id desc
),
replaced as (
	update {s}.failed_jobs l set resolved_at = now(), resolution = 'tried again'
	from doubtful where l.event_id = doubtful.event_id and l.resolved_at is null and l.kind in ('send', 'claim')
),
letters as (
	insert into {s}.failed_jobs (kind, name, event_id, payload_hash, payload, request, last_error, attempts, certainty)
	select 'send', target, event_id, payload_hash, before.payload, before.request,
		'its sender (' || coalesce(nullif(owner, ''), 'unknown') || ') ended before it could record what became of it', 1, 'in_doubt'
	from doubtful left join before using (event_id) order by event_id
	returning 1
)
select (select oldest_binary from info)::text, 'true', (select count(*) from letters)`

// Sweep implements runner.Sweeper.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	return s.count(ctx, statement{s.sql(sweep), []any{sqlschema.Version}})
}
