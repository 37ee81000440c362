package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncectl/oncectl/runner"
)

// claimColumns are those of a runner.Claim; times in microseconds.
const claimColumns = `e.event_id, (extract(epoch from e.claimed_at) * 1000000)::bigint, e.token::text, e.run_id, e.owner,
	e.payload_hash, e.target, (extract(epoch from e.expires_at) * 1000000)::bigint, e.outcome,
	(extract(epoch from e.finished_at) * 1000000)::bigint, e.expires_at <= now()`

// lookup always has a row, which tells the oldest binary.
const lookup = `select i.oldest_binary, ` + claimColumns + `
from {s}.schema_info i left join {s}.processed_events e on e.event_id = any($1::text[])`

// Lookup implements runner.ClaimReader.
func (s *Store) Lookup(ctx context.Context, ids []runner.EventID) ([]runner.Claim, error) {
	return s.lookup(ctx, s, ids)
}

func (s *Store) lookup(ctx context.Context, ex executor, ids []runner.EventID) ([]runner.Claim, error) {
	results, err := ex.exec(ctx, 0, statement{s.sql(lookup), []any{texts(ids)}})
	if err != nil {
		return nil, err
	}
	var claims []runner.Claim
	for _, r := range results[0] {
		if err := notFor(int(r.number(0))); err != nil {
			return nil, err
		}
		if !r.null(1) {
			claims = append(claims, readClaimRow(r[1:]))
		}
	}
	return claims, nil
}

func readClaimRow(r row) runner.Claim {
	return runner.Claim{
		ID: runner.EventID(r.text(0)), ClaimedAt: r.time(1), Token: runner.Token(r.text(2)), RunID: r.number(3), Owner: r.text(4),
		PayloadHash: r.text(5), Target: r.text(6), ExpiresAt: r.time(7), Outcome: runner.Outcome(r.text(8)),
		FinishedAt: r.time(9), Expired: r.bool(10),
	}
}

// eachClaim lists claims, oldest first. Parameters: prefix, in doubt, age in
// microseconds (0: any).
const eachClaim = `select i.oldest_binary, ` + claimColumns + `
from {s}.schema_info i left join {s}.processed_events e
on ($1::text = '' or starts_with(e.event_id, $1::text))
	and (not $2::boolean or e.outcome = 'in_doubt' or e.outcome is null and e.expires_at <= now())
	and ($3::bigint = 0 or e.claimed_at >= now() - $3::bigint * interval '1 microsecond')
order by e.claimed_at, e.event_id`

// EachClaim implements runner.ClaimReader. It has a connection of its own, so
// that f may use the store meanwhile.
func (s *Store) EachClaim(ctx context.Context, filter runner.ClaimFilter, f func(runner.Claim) error) error {
	st := statement{s.sql(eachClaim), []any{filter.Prefix, filter.InDoubt, filter.Since.Microseconds()}}
	return s.stream(ctx, st, func(r row) error {
		if err := notFor(int(r.number(0))); err != nil || r.null(1) {
			return err
		}
		if err := f(readClaimRow(r[1:])); err != nil {
			return errCallback{err}
		}
		return nil
	})
}

// stream runs a query on a connection of its own and calls f for each row as
// it comes: memory does not grow with the result.
func (s *Store) stream(ctx context.Context, st statement, f func(row) error) error {
	started := false
	return s.retry(ctx, func(ctx context.Context) error {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer closeConn(c)
		if _, err := pipeline(ctx, c, statement{sql: begin}, statement{settings, []any{"0"}}); err != nil {
			return standby(ctx, c, err)
		}
		err = streamRows(ctx, c, st, func(r row) error { started = true; return f(r) })
		if isMissing(err) {
			rollback(c)
			if err = s.makeTables(ctx, c); err == nil {
				err = transient{errTablesMade}
			}
		}
		if started && isTransient(err) {
			// Rows were shown; to begin again would show them twice.
			return errCallback{s.translate(err)}
		}
		return err
	})
}

var errTablesMade = errors.New("the tables were not there yet")

// streamRows reads one query row by row.
func streamRows(ctx context.Context, c *pgconn.PgConn, st statement, f func(row) error) error {
	rr := c.ExecParams(ctx, st.sql, encode(st.args), nil, nil, nil)
	for rr.NextRow() {
		r := make(row, len(rr.Values()))
		copy(r, rr.Values()) // the values live until the next row
		if err := f(r); err != nil {
			closeConn(c) // quicker than to read the rest
			return err
		}
	}
	_, err := rr.Close()
	return err
}
