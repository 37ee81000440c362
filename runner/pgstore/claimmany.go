package pgstore

import (
	"context"

	"github.com/oncectl/oncectl/runner"
)

// claimMany is claimInsert for many bare ids: it answers how many were won
// instead of naming them, since a stream of new events mostly wins all. Its
// parameters are those of claimHead, without hashes, targets and take-over.
const claimMany = `with info as (select oldest_binary from {s}.schema_info), {fence},
input as (
	select distinct on (u.id collate "C") u.id from unnest($1::text[]) as u(id)
	where (select oldest_binary from info) <= $8::int and exists (select from fence)
		and $6::text[] is null and $7::text[] is null and $9::int = 0
	order by u.id collate "C"
),
won as (
	insert into {s}.processed_events (event_id, token, run_id, owner, expires_at)
	select id, $2::uuid, $3::bigint, $4::text, case when $5::bigint > 0 then now() + $5::bigint * interval '1 microsecond' end
	from input
	on conflict (event_id) do nothing
	returning 1
)
select (select oldest_binary from info)::text, exists (select from fence)::text, (select count(*) from won)`

// isMany reports whether claimMany will do for req.
func isMany(req runner.ClaimRequest) bool {
	return len(req.IDs) > againAtMost && req.Take == 0 && len(req.PayloadHashes) == 0 && len(req.Targets) == 0
}

// claimMany claims many bare ids, and asks which were won only where some were not.
func (s *Store) claimMany(ctx context.Context, ex executor, req runner.ClaimRequest) ([]bool, error) {
	args := s.claimArgs(req, nil, nil)
	results, err := ex.exec(ctx, runner.ClaimPatience, s.fenced(claimMany, req, args))
	if err != nil {
		return nil, err
	}
	r := results[0][0]
	if err := letIn(r); err != nil {
		return nil, err
	}
	won := make([]bool, len(req.IDs))
	if r.number(2) < int64(len(won)) {
		return s.claimLost(ctx, ex, req, won)
	}
	for i := range won {
		won[i] = true
	}
	return won, nil
}
