package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// ownRows share-locks the fence, where the caller is a run, and locks the rows
// in the order of their ids. What it returns is what the statements behind it
// in the same transaction see. Parameters: ids, token, run, lock key, run's
// token, this binary's schema version.
const ownRows = `with info as (select oldest_binary from {s}.schema_info),
fence as (
	select 1 from {s}.fences where lock_key = $3::bigint and run_id = $2::bigint and token = $4::uuid for share
),
mine as (
	select event_id, token, run_id, outcome from {s}.processed_events
	where event_id = any($1::text[]) order by event_id for update
)
select (select oldest_binary from info)::text, ($2::bigint is null or exists (select from fence))::text, null, null
union all select event_id, token::text, run_id::text, outcome from mine`

// allowed is the condition under which a row is the caller's to change, with
// the parameters of ownRows but for its ids, then this binary's schema version.
const allowed = `(select oldest_binary from {s}.schema_info) <= $6::int
	and ($2::uuid is null or e.token = $2::uuid)
	and ($3::bigint is null or e.run_id = $3::bigint and exists (
		select from {s}.fences f where f.lock_key = $4::bigint and f.run_id = $3::bigint and f.token = $5::uuid))`

// settleMany records outcomes that have no dead letter, and resolves the dead
// letters that their events had.
const settleMany = `with input as (
	select * from unnest($1::text[], $7::text[]) as u(id, outcome)
),
done as (
	update {s}.processed_events e set outcome = input.outcome, finished_at = now()
	from input
	where e.event_id = input.id and (e.outcome is null or e.outcome = 'in_doubt' and input.outcome <> 'in_doubt') and ` + allowed + `
	returning e.event_id, e.outcome
)
update {s}.failed_jobs l set resolved_at = now(), resolution = done.outcome
from done where l.event_id = done.event_id and l.resolved_at is null and l.kind in ('send', 'claim')`

// settleFailed records one outcome with its dead letter, which takes the place
// of those that the event had.
const settleFailed = `with done as (
	update {s}.processed_events e set outcome = $7::text, finished_at = now()
	where e.event_id = any($1::text[]) and (e.outcome is null or e.outcome = 'in_doubt' and $7::text <> 'in_doubt') and ` + allowed + `
	returning e.event_id
),
before as (
	update {s}.failed_jobs l set resolved_at = now(), resolution = 'tried again'
	from done where l.event_id = done.event_id and l.resolved_at is null and l.kind in ('send', 'claim')
)
insert into {s}.failed_jobs (kind, name, event_id, payload_hash, payload, request, last_error, attempts, certainty, retry_at)
select $8::text, $9::text, $10::text, $11::text, $12::bytea, $13::jsonb, $14::text, $15::int, $16::text, $17::timestamptz from done`

// owner is what tells the caller's rows from others'.
type owner struct {
	token runner.Token
	run   *runner.Run
}

// args are the parameters token, run, lock key and the run's token.
func (o owner) args() []any {
	args := []any{orNull(string(o.token)), nil, nil, nil}
	if o.run != nil {
		args[1], args[2], args[3] = o.run.ID, o.run.Lock.Key, string(o.run.Token)
	}
	return args
}

// owns reports whether a row of ownRows is the caller's.
func (o owner) owns(r row) bool {
	return (o.token == "" || r.text(1) == string(o.token)) && (o.run == nil || !r.null(2) && r.number(2) == o.run.ID)
}

// Settle implements runner.Claimer.
func (s *Store) Settle(ctx context.Context, req runner.SettleRequest) ([]runner.SettleAnswer, error) {
	return s.settle(ctx, s, req)
}

func (s *Store) settle(ctx context.Context, ex executor, req runner.SettleRequest) ([]runner.SettleAnswer, error) {
	if len(req.Settlements) == 0 {
		return nil, nil
	}
	stmts, err := s.settleStatements(req)
	if err != nil {
		return nil, err
	}
	results, err := ex.exec(ctx, runner.ClaimPatience, stmts...)
	if err != nil {
		return nil, err
	}
	return readSettle(req, results[0])
}

// settleStatements are the transaction of a settlement; the rows of the first
// tell the answers.
func (s *Store) settleStatements(req runner.SettleRequest) ([]statement, error) {
	own := owner{req.Token, req.Run}
	var all, ids, outcomes []string
	var failed []statement
	for _, st := range inTheEnd(req.Settlements) {
		all = append(all, string(st.ID))
		if st.DeadLetter == nil {
			ids, outcomes = append(ids, string(st.ID)), append(outcomes, string(st.Outcome))
			continue
		}
		if err := st.DeadLetter.Check(); err != nil {
			return nil, fmt.Errorf("saving the dead letter of %q: %w", st.ID, err)
		}
		args := append(s.allowedArgs([]string{string(st.ID)}, own), string(st.Outcome))
		failed = append(failed, statement{s.sql(settleFailed), append(args, letterArgs(*st.DeadLetter)...)})
	}
	stmts := []statement{{s.sql(ownRows), append([]any{all}, own.args()[1:]...)}}
	if len(ids) > 0 {
		stmts = append(stmts, statement{s.sql(settleMany), append(s.allowedArgs(ids, own), outcomes)})
	}
	return append(stmts, failed...), nil
}

// inTheEnd keeps one settlement for each id: the one that stands when all are
// taken in order, where only doubt gives way to what comes later.
func inTheEnd(settlements []runner.Settlement) []runner.Settlement {
	place := make(map[runner.EventID]int, len(settlements))
	out := make([]runner.Settlement, 0, len(settlements))
	for _, st := range settlements {
		i, again := place[st.ID]
		switch {
		case !again:
			place[st.ID] = len(out)
			out = append(out, st)
		case out[i].Outcome == runner.InDoubt:
			out[i] = st
		}
	}
	return out
}

// allowedArgs are the parameters of a statement with the condition allowed.
func (s *Store) allowedArgs(ids []string, own owner) []any {
	args := append([]any{ids}, own.args()...)
	return append(args, sqlschema.Version)
}

// letterArgs are a dead letter's columns, from kind to retry_at.
func letterArgs(d runner.DeadLetter) []any {
	var request any
	if d.Request != nil {
		request = string(d.Request)
	}
	return []any{
		string(d.Kind), runner.KeptText(d.Name), orNull(string(d.EventID)), orNull(d.PayloadHash), d.Payload, request,
		runner.KeptText(d.LastError), d.Attempts, string(d.Certainty), d.RetryAt,
	}
}

// readSettle tells the answers from the rows as they were before.
func readSettle(req runner.SettleRequest, rows []row) ([]runner.SettleAnswer, error) {
	if err := letIn(rows[0]); err != nil {
		return nil, err
	}
	own := owner{req.Token, req.Run}
	outcomes := map[string]runner.Outcome{}
	for _, r := range rows[1:] {
		if own.owns(r) {
			outcomes[r.text(0)] = runner.Outcome(r.text(3))
		}
	}
	there := byID(rows[1:])
	answers := make([]runner.SettleAnswer, len(req.Settlements))
	for i, st := range req.Settlements {
		before, mine := outcomes[string(st.ID)]
		switch {
		case !there[string(st.ID)]:
			answers[i] = runner.NotClaimed
		case !mine:
			answers[i] = runner.NotOwner
		case before == st.Outcome:
			answers[i] = runner.AlreadySettled
		case before == "" || before == runner.InDoubt:
			answers[i] = runner.Settled
			outcomes[string(st.ID)] = st.Outcome
		default:
			answers[i] = runner.NotOwner
		}
	}
	return answers, nil
}

func byID(rows []row) map[string]bool {
	there := make(map[string]bool, len(rows))
	for _, r := range rows {
		there[r.text(0)] = true
	}
	return there
}

// giveBack deletes claims that are the caller's and were not delivered.
const giveBack = `delete from {s}.processed_events e
where e.event_id = any($1::text[]) and e.outcome is distinct from 'delivered' and ` + allowed

// GiveBack implements runner.Claimer.
func (s *Store) GiveBack(ctx context.Context, req runner.GiveBackRequest) ([]runner.SettleAnswer, error) {
	return s.giveBack(ctx, s, req)
}

func (s *Store) giveBack(ctx context.Context, ex executor, req runner.GiveBackRequest) ([]runner.SettleAnswer, error) {
	if len(req.IDs) == 0 {
		return nil, nil
	}
	own := owner{req.Token, req.Run}
	ids := texts(req.IDs)
	unsure := false
	results, err := ex.exec(context.WithValue(ctx, unsureKey{}, &unsure), runner.ClaimPatience,
		statement{s.sql(ownRows), append([]any{ids}, own.args()[1:]...)},
		statement{s.sql(giveBack), s.allowedArgs(ids, own)})
	if err != nil {
		return nil, err
	}
	rows := results[0]
	if err := letIn(rows[0]); err != nil {
		return nil, err
	}
	found := make(map[string]row, len(rows))
	for _, r := range rows[1:] {
		found[r.text(0)] = r
	}
	answers := make([]runner.SettleAnswer, len(req.IDs))
	for i, id := range req.IDs {
		r, there := found[string(id)]
		switch {
		case !there && unsure:
			// The first try's answer was lost; it is gone, as was asked.
			answers[i] = runner.Settled
		case !there:
			answers[i] = runner.NotClaimed
		case !own.owns(r):
			answers[i] = runner.NotOwner
		case r.text(3) == string(runner.Delivered):
			answers[i] = runner.AlreadySettled
		default:
			answers[i] = runner.Settled
			delete(found, string(id))
		}
	}
	return answers, nil
}

// renew moves expires_at, by the database's clock.
const renew = `with info as (select oldest_binary from {s}.schema_info),
moved as (
	update {s}.processed_events set expires_at = now() + $3::bigint * interval '1 microsecond'
	where event_id = any($1::text[]) and token = $2::uuid and outcome is null and expires_at is not null
		and (select oldest_binary from info) <= $4::int
	returning 1
)
select (select oldest_binary from info)::text, 'true', (select count(*) from moved)`

// Renew implements runner.Renewer.
func (s *Store) Renew(ctx context.Context, ids []runner.EventID, token runner.Token, d time.Duration) (int, error) {
	return s.renew(ctx, s, ids, token, d)
}

func (s *Store) renew(ctx context.Context, ex executor, ids []runner.EventID, token runner.Token, d time.Duration) (int, error) {
	results, err := ex.exec(ctx, runner.ClaimPatience, statement{s.sql(renew), []any{texts(ids), string(token), d.Microseconds(), sqlschema.Version}})
	if err != nil {
		return 0, err
	}
	r := results[0][0]
	if err := letIn(r); err != nil {
		return 0, err
	}
	return int(r.number(2)), nil
}

// Turn implements runner.Turner: the settlement's statements, then the claim,
// in one transaction.
func (s *Store) Turn(ctx context.Context, settle runner.SettleRequest, claim runner.ClaimRequest) ([]runner.SettleAnswer, []bool, error) {
	return s.turn(ctx, s, settle, claim)
}

func (s *Store) turn(ctx context.Context, ex executor, settle runner.SettleRequest, claim runner.ClaimRequest) ([]runner.SettleAnswer, []bool, error) {
	if len(settle.Settlements) == 0 || len(claim.IDs) == 0 {
		answers, err := s.settle(ctx, ex, settle)
		if err != nil {
			return nil, nil, err
		}
		won, err := s.claim(ctx, ex, claim)
		return answers, won, err
	}
	stmts, err := s.settleStatements(settle)
	if err != nil {
		return nil, nil, err
	}
	st, err := s.claimStatement(claim, true)
	if err != nil {
		return nil, nil, err
	}
	results, err := ex.exec(ctx, runner.ClaimPatience, append(stmts, st)...)
	if err != nil {
		return nil, nil, err
	}
	answers, err := readSettle(settle, results[0])
	if err != nil {
		return nil, nil, err
	}
	won, _, err := readClaim(claim.IDs, results[len(results)-1])
	return answers, won, err
}
