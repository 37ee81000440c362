package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// executor runs statements in one transaction: on the store's connection, or
// on those of a lock that is held.
type executor interface {
	exec(ctx context.Context, lockTimeout time.Duration, stmts ...statement) ([][]row, error)
}

func (s *Store) exec(ctx context.Context, lockTimeout time.Duration, stmts ...statement) (results [][]row, err error) {
	err = s.do(ctx, func(ctx context.Context, c conn) error {
		results, err = transact(ctx, c, lockTimeout, stmts...)
		return err
	})
	return results, err
}

// fenceCTE share-locks the fence of run until the transaction commits: a new
// holder's update waits for it, and after that update it finds no row, so that
// no claim of an old run commits once a new one has begun.
const fenceCTE = `fence as (
	select 1 from {s}.fences where lock_key = $10::bigint and run_id = $3::bigint and token = $11::uuid for share
)`

// claimHead names what all forms of the claim share. Parameters: ids, token,
// run, owner, expiry in microseconds (0: bare), hashes, targets, this binary's
// schema version, take-over flags.
const claimHead = `with info as (select oldest_binary from {s}.schema_info), {fence},
input as (
	select distinct on (u.id collate "C") u.id, nullif(u.hash, '') as hash, nullif(u.target, '') as target
	from unnest($1::text[], $6::text[], $7::text[]) with ordinality as u(id, hash, target, n)
	where (select oldest_binary from info) <= $8::int and exists (select from fence) and $9::int >= 0
	order by u.id collate "C", u.n
),`

// claimInsert is the unique insert that decides the winner. It inserts in the
// order of the ids, so that two batches never wait for each other in a circle,
// and neither locks nor touches a row that is there already. again finds the
// caller's own rows of a request whose answer was lost.
const claimInsert = claimHead + `
won as (
	insert into {s}.processed_events (event_id, token, run_id, owner, payload_hash, target, expires_at)
	select id, $2::uuid, $3::bigint, $4::text, hash, target,
		case when $5::bigint > 0 then now() + $5::bigint * interval '1 microsecond' end
	from input
	on conflict (event_id) do nothing
	returning event_id
)`

// claimAgain takes the caller's own unsettled rows as if they were new.
const claimAgain = `,
again as (
	update {s}.processed_events e
	set claimed_at = now(), run_id = $3::bigint, owner = $4::text,
		payload_hash = coalesce(input.hash, e.payload_hash), target = coalesce(input.target, e.target),
		expires_at = case when $5::bigint > 0 then now() + $5::bigint * interval '1 microsecond' end
	from input
	where e.event_id = input.id and e.token = $2::uuid and e.outcome is null
		and (e.payload_hash is null or input.hash is null or e.payload_hash = input.hash)
	returning e.event_id
)`

// claimTake is the claim that may also take over what is there: one statement
// that locks the row, looks at it as it then is, and replaces it or not.
const claimTake = claimHead + `
won as (
	insert into {s}.processed_events as e (event_id, token, run_id, owner, payload_hash, target, expires_at)
	select id, $2::uuid, $3::bigint, $4::text, hash, target,
		case when $5::bigint > 0 then now() + $5::bigint * interval '1 microsecond' end
	from input
	on conflict (event_id) do update
	set claimed_at = now(), token = excluded.token, run_id = excluded.run_id, owner = excluded.owner,
		payload_hash = coalesce(excluded.payload_hash, e.payload_hash), target = coalesce(excluded.target, e.target),
		expires_at = excluded.expires_at, outcome = null, finished_at = null
	where (e.payload_hash is null or excluded.payload_hash is null or e.payload_hash = excluded.payload_hash)
		and ((e.token = excluded.token and e.outcome is null)
		or ($9::int & 1 <> 0 and e.outcome is null and e.expires_at <= now())
		or ($9::int & 2 <> 0 and e.outcome = 'failed')
		or ($9::int & 4 <> 0 and e.outcome = 'in_doubt')
		or ($9::int & 8 <> 0 and e.outcome is null and e.expires_at is null and e.run_id = excluded.run_id))
	returning event_id
)`

// claimAnswer begins with one row that tells whether the claim was let in.
const claimAnswer = `
select (select oldest_binary from info)::text, exists (select from fence)::text
union all select event_id, null from won`

// againAtMost is up to how many ids the caller's own rows are looked for in
// the statement itself; for more, only where some were not won.
const againAtMost = 100

// Claim implements runner.Claimer.
func (s *Store) Claim(ctx context.Context, req runner.ClaimRequest) ([]bool, error) {
	return s.claim(ctx, s, req)
}

func (s *Store) claim(ctx context.Context, ex executor, req runner.ClaimRequest) ([]bool, error) {
	if len(req.IDs) == 0 {
		return nil, nil
	}
	switch {
	case isOne(req):
		return s.claimOne(ctx, ex, req)
	case isMany(req):
		return s.claimMany(ctx, ex, req)
	}
	return s.claimAll(ctx, ex, req)
}

// claimAll claims by the statement that can do everything.
func (s *Store) claimAll(ctx context.Context, ex executor, req runner.ClaimRequest) ([]bool, error) {
	st, err := s.claimStatement(req, len(req.IDs) <= againAtMost)
	if err != nil {
		return nil, err
	}
	results, err := ex.exec(ctx, runner.ClaimPatience, st)
	if err != nil {
		return nil, err
	}
	won, lost, err := readClaim(req.IDs, results[0])
	if err != nil || !lost || req.Take != 0 || len(req.IDs) <= againAtMost {
		return won, err
	}
	return s.claimLost(ctx, ex, req, won)
}

// claimLost looks in a large batch for ids that were the caller's already.
func (s *Store) claimLost(ctx context.Context, ex executor, req runner.ClaimRequest, won []bool) ([]bool, error) {
	results, err := ex.exec(ctx, runner.ClaimPatience, statement{s.sql(`select event_id from {s}.processed_events
		where event_id = any($1::text[]) and token = $2::uuid and outcome is null`), []any{texts(req.IDs), string(req.Token)}})
	if err != nil {
		return nil, err
	}
	mine := make(map[string]bool, len(results[0]))
	for _, r := range results[0] {
		mine[r.text(0)] = true
	}
	for i, id := range req.IDs {
		if mine[string(id)] {
			won[i] = true
			delete(mine, string(id)) // won at its first place only
		} else {
			won[i] = false
		}
	}
	return won, nil
}

// claimStatement chooses the form of the claim and fills it in.
func (s *Store) claimStatement(req runner.ClaimRequest, again bool) (statement, error) {
	hashes, err := perID("payload hashes", req.PayloadHashes, len(req.IDs))
	if err != nil {
		return statement{}, err
	}
	targets, err := perID("targets", req.Targets, len(req.IDs))
	if err != nil {
		return statement{}, err
	}
	text := claimInsert
	switch {
	case req.Take != 0:
		text = claimTake
	case again:
		text += claimAgain
	}
	text += claimAnswer
	if req.Take == 0 && again {
		text += ` union all select event_id, null from again`
	}
	return s.fenced(text, req, s.claimArgs(req, hashes, targets)), nil
}

// claimArgs are the parameters of claimHead.
func (s *Store) claimArgs(req runner.ClaimRequest, hashes, targets any) []any {
	return []any{
		texts(req.IDs), string(req.Token), nil, req.Owner, max(req.Expires.Microseconds(), int64(sign(req.Expires))), hashes, targets,
		sqlschema.Version, int(req.Take),
	}
}

// fenced puts the fence of the claim's run into a statement; {fence} is in none
// but it.
func (s *Store) fenced(text string, req runner.ClaimRequest, args []any) statement {
	if req.Run == nil {
		return statement{s.sql(strings.Replace(text, "{fence}", "fence as (select 1)", 1)), args}
	}
	args[2] = req.Run.ID
	args = append(args, req.Run.Lock.Key, string(req.Run.Token))
	return statement{s.sql(strings.Replace(text, "{fence}", fenceCTE, 1)), args}
}

// sign is 1 for a positive duration, so that the shortest one still expires.
func sign(d time.Duration) int {
	if d > 0 {
		return 1
	}
	return 0
}

// perID returns one value for each id.
func perID(what string, values []string, n int) ([]string, error) {
	switch len(values) {
	case 0:
		return make([]string, n), nil
	case n:
		return values, nil
	}
	return nil, fmt.Errorf("claiming: %w: %d %s for %d ids", runner.ErrInvalid, len(values), what, n)
}

func texts(ids []runner.EventID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// readClaim maps the ids that were won to their first places.
func readClaim(ids []runner.EventID, rows []row) (won []bool, lost bool, err error) {
	if err := letIn(rows[0]); err != nil {
		return nil, false, err
	}
	names := make(map[string]bool, len(rows)-1)
	for _, r := range rows[1:] {
		names[r.text(0)] = true
	}
	won = make([]bool, len(ids))
	for i, id := range ids {
		if names[string(id)] {
			won[i] = true
			delete(names, string(id))
		} else {
			lost = true
		}
	}
	return won, lost, nil
}

// letIn reads the row by which statements tell that they did nothing: the
// oldest binary that the schema is for, and whether the fence is the caller's.
func letIn(r row) error {
	oldest, err := strconv.Atoi(r.text(0))
	if err != nil {
		return fmt.Errorf("%w: schema_info has no row: run 'oncectl schema apply'", runner.ErrRefused)
	}
	if err := notFor(oldest); err != nil {
		return err
	}
	if r.text(1) != "true" {
		return runner.ErrFenced
	}
	return nil
}
