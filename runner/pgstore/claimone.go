package pgstore

import (
	"context"

	"github.com/oncectl/oncectl/runner"
)

// claimOne is claimInsert for one event, which is what most claims are: the
// server plans it in half the time. Its parameters are those of claimHead, with
// the values themselves for the arrays. The last column finds the caller's own
// row of a request whose answer was lost.
const claimOne = `with info as (select oldest_binary from {s}.schema_info), {fence},
won as (
	insert into {s}.processed_events (event_id, token, run_id, owner, payload_hash, target, expires_at)
	select $1::text, $2::uuid, $3::bigint, $4::text, $6::text, $7::text,
		case when $5::bigint > 0 then now() + $5::bigint * interval '1 microsecond' end
	from info where oldest_binary <= $8::int and exists (select from fence) and $9::int = 0
	on conflict (event_id) do nothing
	returning 1
)
select (select oldest_binary from info)::text, exists (select from fence)::text, exists (select from won),
	exists (select from {s}.processed_events where event_id = $1::text and token = $2::uuid)`

// isOne reports whether claimOne will do for req.
func isOne(req runner.ClaimRequest) bool {
	return len(req.IDs) == 1 && req.Take == 0 && len(req.PayloadHashes) <= 1 && len(req.Targets) <= 1
}

// claimOne claims one event. A row of the caller's own is left to the general
// statement, which takes it as if it were new.
func (s *Store) claimOne(ctx context.Context, ex executor, req runner.ClaimRequest) ([]bool, error) {
	args := s.claimArgs(req, single(req.PayloadHashes), single(req.Targets))
	args[0] = string(req.IDs[0])
	results, err := ex.exec(ctx, runner.ClaimPatience, s.fenced(claimOne, req, args))
	if err != nil {
		return nil, err
	}
	r := results[0][0]
	if err := letIn(r); err != nil {
		return nil, err
	}
	won, again := r.bool(2), r.bool(3)
	if !won && again {
		return s.claimAll(ctx, ex, req)
	}
	return []bool{won}, nil
}

// single is the one value there is, or null.
func single(values []string) any {
	if len(values) == 0 || values[0] == "" {
		return nil
	}
	return values[0]
}
