package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/oncectl/oncectl/runner"
)

// claimedAt is claimed_at in the tables' form, also where another program wrote
// it in its own.
const claimedAt = `coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', claimed_at), claimed_at)`

const selectClaims = `select event_id, claimed_at, coalesce(token, ''), coalesce(run_id, 0), coalesce(owner, ''),
	coalesce(payload_hash, ''), coalesce(target, ''), coalesce(expires_at, ''), coalesce(outcome, ''), coalesce(finished_at, ''),
	expires_at is not null and expires_at <= ` + now + `
	from processed_events `

// Lookup implements runner.ClaimReader.
func (s *Store) Lookup(ctx context.Context, ids []runner.EventID) ([]runner.Claim, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("looking for claims: %w", err)
	}
	var out []runner.Claim
	err = s.do(ctx, "looking for claims", s.patient(), func() error {
		if err := s.guard(ctx, s.db, nil); err != nil {
			return err
		}
		rows, err := s.db.QueryContext(ctx, selectClaims+"where event_id in (select value from json_each(?1))", string(list))
		if err != nil {
			return err
		}
		out = out[:0]
		return eachRow(rows, func(c runner.Claim) error {
			out = append(out, c)
			return nil
		})
	})
	return out, err
}

// EachClaim implements runner.ClaimReader. It reads by a connection of its
// own, so that f may use the store.
func (s *Store) EachClaim(ctx context.Context, filter runner.ClaimFilter, f func(runner.Claim) error) error {
	db, err := openDB(s.path)
	if err != nil {
		return fmt.Errorf("reading claims: %w", err)
	}
	defer db.Close()
	var rows *sql.Rows
	err = s.do(ctx, "reading claims", s.patient(), func() (err error) {
		if err := s.guard(ctx, db, nil); err != nil {
			return err
		}
		rows, err = queryClaims(ctx, db, filter)
		return err
	})
	if err != nil {
		return err
	}
	failed := error(nil)
	err = eachRow(rows, func(c runner.Claim) error {
		failed = f(c)
		return failed
	})
	if err != nil && failed == nil {
		return fmt.Errorf("reading claims: %w", s.translate(err))
	}
	return err
}

// queryClaims selects what filter says, oldest first. A prefix is compared by
// its characters: no pattern, so that nothing in it has a meaning.
func queryClaims(ctx context.Context, db *sql.DB, filter runner.ClaimFilter) (*sql.Rows, error) {
	var since any
	if filter.Since > 0 {
		since = modifier(-filter.Since)
	}
	return db.QueryContext(ctx, selectClaims+`where event_id >= ?1 and substr(event_id, 1, length(?1)) = ?1
		and (?2 is null or `+claimedAt+` >= `+later("?2")+`)
		and (not ?3 or outcome = 'in_doubt' or (outcome is null and expires_at <= `+now+`))
		order by `+claimedAt+`, event_id`, filter.Prefix, since, filter.InDoubt)
}

// eachRow calls f for each claim and closes rows.
func eachRow(rows *sql.Rows, f func(runner.Claim) error) error {
	defer rows.Close()
	for rows.Next() {
		var c runner.Claim
		var claimedAt, expiresAt, finishedAt string
		err := rows.Scan(&c.ID, &claimedAt, &c.Token, &c.RunID, &c.Owner, &c.PayloadHash, &c.Target, &expiresAt, &c.Outcome, &finishedAt, &c.Expired)
		if err != nil {
			return err
		}
		c.ClaimedAt, c.ExpiresAt, c.FinishedAt = parseTime(claimedAt), parseTime(expiresAt), parseTime(finishedAt)
		if err := f(c); err != nil {
			return err
		}
	}
	return rows.Err()
}
