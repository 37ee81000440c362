package sqlitestore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// claimSQL claims a JSON array of ids, or of triples of id, payload hash and
// target, in one statement, which is one transaction. It writes nothing if the tables are
// for newer binaries or the run has not its lock's fence, and returns the ids
// that were won. Parameters: 1 the array, 2 token, 3 owner, 4 run id, 5 expiry,
// 6 take, 7 oldest binary, 8 lock key, 9 the run's token.
//
// Taking over is decided by the row as it is under the write lock. "Expired"
// includes the millisecond itself, as claim's reader shows it.
func claimSQL(triples bool) string {
	id, hash, target := "value", "null", "null"
	if triples {
		id, hash, target = "value ->> 0", "nullif(value ->> 1, '')", "nullif(value ->> 2, '')"
	}
	return `insert into processed_events (event_id, token, owner, run_id, expires_at, payload_hash, target)
	select ` + id + `, ?2, ?3, ?4, ` + later("?5") + `, ` + hash + `, ` + target + ` from json_each(?1)
	where (select oldest_binary from schema_info) <= ?7
	and (?8 is null or exists (select 1 from fences where lock_key = ?8 and run_id = ?4 and token = ?9))
	on conflict (event_id) do update set
		claimed_at = excluded.claimed_at, token = excluded.token, owner = excluded.owner, run_id = excluded.run_id,
		expires_at = excluded.expires_at, payload_hash = coalesce(excluded.payload_hash, payload_hash),
		target = coalesce(excluded.target, target),
		outcome = null, finished_at = null
	where (payload_hash is null or excluded.payload_hash is null or payload_hash = excluded.payload_hash)
	and case
		when outcome = 'failed' then ?6 & 2
		when outcome = 'in_doubt' then ?6 & 4
		when outcome is not null then 0
		when token = excluded.token then 1
		when expires_at is not null then ?6 & 1 and expires_at <= ` + now + `
		else ?6 & 8 and run_id = excluded.run_id
	end
	returning event_id`
}

// The statement's numbers are runner's flags, or this does not compile.
const _ = -uint((runner.TakeExpired ^ 1) | (runner.TakeFailed ^ 2) | (runner.TakeInDoubt ^ 4) | (runner.TakeBareOfRun ^ 8))

// Claim implements runner.Claimer.
//
// Measured for 10,000 ids a call: 250,000 ids/s where ids come in order, 30,000
// where they are random and the table has outgrown the page cache of 2 MB; a
// prepared statement for each id gives 100,000 and 20,000.
func (s *Store) Claim(ctx context.Context, req runner.ClaimRequest) ([]bool, error) {
	won := make([]bool, len(req.IDs))
	if len(req.IDs) == 0 {
		return won, nil
	}
	list, err := idList(req)
	if err != nil {
		return nil, err
	}
	var winners map[runner.EventID]struct{}
	err = s.do(ctx, claiming(req.IDs), s.undecided(), func() (err error) {
		winners, err = s.claim(ctx, s.db, req, list)
		if err != nil || len(winners) > 0 {
			return err
		}
		// Nothing was won, or nothing was tried. Neither a fence nor a schema
		// ever goes back, so that if all is well now it was well before.
		return s.guard(ctx, s.db, req.Run)
	})
	if err != nil {
		return nil, err
	}
	markFirst(won, req.IDs, winners)
	return won, nil
}

// markFirst tells for each id whether it was won: at its first place only.
func markFirst(won []bool, ids []runner.EventID, winners map[runner.EventID]struct{}) {
	for i, id := range ids {
		if _, won[i] = winners[id]; won[i] {
			delete(winners, id)
		}
	}
}

func claiming(ids []runner.EventID) string {
	if len(ids) == 1 {
		return fmt.Sprintf("claiming %q", ids[0])
	}
	return fmt.Sprintf("claiming %d events", len(ids))
}

// idList is the statement's list: each id once, at its first place, and sorted,
// so that each page of the table is visited once.
func idList(req runner.ClaimRequest) (string, error) {
	hashes, err := perID("payload hashes", req.PayloadHashes, len(req.IDs))
	if err != nil {
		return "", err
	}
	targets, err := perID("targets", req.Targets, len(req.IDs))
	if err != nil {
		return "", err
	}
	var list any
	if !hasTriples(req) {
		ids := append([]runner.EventID{}, req.IDs...) // never null in JSON
		slices.Sort(ids)
		list = slices.Compact(ids)
	} else {
		first := make(map[runner.EventID]struct{}, len(req.IDs))
		triples := make([][3]string, 0, len(req.IDs))
		for i, id := range req.IDs {
			if _, dup := first[id]; !dup {
				first[id] = struct{}{}
				triples = append(triples, [3]string{string(id), hashes[i], targets[i]})
			}
		}
		list = triples
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("claiming: %w", err)
	}
	return string(b), nil
}

func hasTriples(req runner.ClaimRequest) bool { return len(req.PayloadHashes)+len(req.Targets) > 0 }

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

// claim runs the statement and returns the ids that were won.
func (s *Store) claim(ctx context.Context, q querier, req runner.ClaimRequest, list string) (map[runner.EventID]struct{}, error) {
	var expires, runID, lockKey, runToken any
	if req.Expires > 0 {
		expires = modifier(req.Expires)
	}
	if req.Run != nil {
		runID, lockKey, runToken = req.Run.ID, req.Run.Lock.Key, string(req.Run.Token)
	}
	rows, err := q.QueryContext(ctx, claimSQL(hasTriples(req)), list, string(req.Token), orNull(req.Owner),
		runID, expires, int64(req.Take), sqlschema.Version, lockKey, runToken)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	winners := make(map[runner.EventID]struct{}, len(req.IDs))
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		winners[runner.EventID(id)] = struct{}{}
	}
	// The statement commits when its last row was read: the error of a commit
	// that went wrong is this one.
	return winners, rows.Err()
}
