package broker

import (
	"fmt"
	"slices"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// The names on the wire, each at the place of its value.

func answerNames() []string {
	return []string{runner.Settled: "settled", runner.AlreadySettled: "already_settled",
		runner.NotOwner: "not_owner", runner.NotClaimed: "not_claimed"}
}

func feedbackNames() []string {
	return []string{runner.AnswerNone: "none", runner.AnswerDelivered: "delivered",
		runner.AnswerOther: "other", runner.AnswerRefused: "refused"}
}

// takeNames are those of the bits of runner.TakeOver.
func takeNames() []string { return []string{"expired", "failed", "in_doubt", "bare_of_run"} }

func encodeTake(t runner.TakeOver) []string {
	names := []string{} // not nil: nothing is to be taken over
	for i, name := range takeNames() {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func decodeTake(names []string) (t runner.TakeOver, err error) {
	for _, name := range names {
		i := slices.Index(takeNames(), name)
		if i < 0 {
			return 0, fmt.Errorf("%w: take %q is none of %q", runner.ErrInvalid, name, takeNames())
		}
		t |= 1 << i
	}
	return t, nil
}

func encodeAnswers(answers []runner.SettleAnswer) []string {
	names := answerNames()
	out := make([]string, len(answers))
	for i, a := range answers {
		out[i] = names[a]
	}
	return out
}

func decodeAnswers(in []string) ([]runner.SettleAnswer, error) {
	names := answerNames()
	out := make([]runner.SettleAnswer, len(in))
	for i, name := range in {
		a := slices.Index(names, name)
		if a < 0 {
			return nil, fmt.Errorf("%w: the run above answered %q", runner.ErrUndecided, name)
		}
		out[i] = runner.SettleAnswer(a)
	}
	return out, nil
}

// some is ids, of which "none" is told apart from "not said".
func some(ids []runner.EventID) []runner.EventID {
	if ids == nil {
		return []runner.EventID{}
	}
	return ids
}

func encodeClaimRequest(r runner.ClaimRequest) claimBody {
	return claimBody{
		IDs: some(r.IDs), Token: r.Token, Owner: r.Owner, Expires: lifetime(r.Expires),
		PayloadHashes: r.PayloadHashes, Targets: r.Targets, Take: encodeTake(r.Take),
	}
}

// request is the claim that b asks for, by run. What b leaves out gets the
// values that people expect: those of 'oncectl claim'.
func (b claimBody) request(run *runner.Run) (runner.ClaimRequest, error) {
	if err := b.check(); err != nil {
		return runner.ClaimRequest{}, err
	}
	take, err := decodeTake(b.Take)
	if err != nil {
		return runner.ClaimRequest{}, err
	}
	if b.Take == nil && b.Expires > 0 {
		take = runner.TakeExpired
	}
	if b.Token == "" {
		b.Token = runner.NewToken()
	}
	if b.Owner == "" {
		b.Owner = fmt.Sprintf("%s/%d", run.Host.Name, run.PID)
	}
	return runner.ClaimRequest{
		IDs: b.IDs, Token: b.Token, Owner: b.Owner, Run: run, Expires: time.Duration(b.Expires),
		PayloadHashes: b.PayloadHashes, Targets: b.Targets, Take: take,
	}, nil
}

func encodeSettleRequest(r runner.SettleRequest) settleBody {
	b := settleBody{Token: r.Token, Settlements: make([]settlement, len(r.Settlements))}
	for i, s := range r.Settlements {
		b.Settlements[i] = settlement{ID: s.ID, Outcome: s.Outcome}
		if d := s.DeadLetter; d != nil {
			b.Settlements[i].DeadLetter = &deadLetter{
				Kind: d.Kind, Name: d.Name, EventID: d.EventID, PayloadHash: d.PayloadHash, Payload: d.Payload,
				Request: d.Request, LastError: d.LastError, Attempts: d.Attempts, Certainty: d.Certainty, RetryAt: d.RetryAt,
			}
		}
	}
	return b
}

// request is the settlement that b asks for, by run.
func (b settleBody) request(run *runner.Run) (runner.SettleRequest, error) {
	if err := b.check(); err != nil {
		return runner.SettleRequest{}, err
	}
	req := runner.SettleRequest{Token: b.Token, Run: run, Settlements: make([]runner.Settlement, len(b.Settlements))}
	for i, s := range b.Settlements {
		req.Settlements[i] = runner.Settlement{ID: s.ID, Outcome: s.Outcome}
		if d := s.DeadLetter; d != nil {
			req.Settlements[i].DeadLetter = &runner.DeadLetter{
				Kind: d.Kind, Name: d.Name, EventID: d.EventID, PayloadHash: d.PayloadHash, Payload: d.Payload,
				Request: d.Request, LastError: d.LastError, Attempts: d.Attempts, Certainty: d.Certainty, RetryAt: d.RetryAt,
			}
		}
	}
	return req, nil
}

func encodeClaim(c runner.Claim) claim {
	return claim{
		ID: c.ID, State: c.State(), ClaimedAt: c.ClaimedAt, Token: c.Token, RunID: c.RunID, Owner: c.Owner,
		PayloadHash: c.PayloadHash, Target: c.Target, ExpiresAt: c.ExpiresAt, Outcome: c.Outcome,
		FinishedAt: c.FinishedAt, Expired: c.Expired,
	}
}

func (c claim) claim() runner.Claim {
	return runner.Claim{
		ID: c.ID, ClaimedAt: c.ClaimedAt, Token: c.Token, RunID: c.RunID, Owner: c.Owner,
		PayloadHash: c.PayloadHash, Target: c.Target, ExpiresAt: c.ExpiresAt, Outcome: c.Outcome,
		FinishedAt: c.FinishedAt, Expired: c.Expired,
	}
}

func encodeRun(r runner.Run) runAnswer {
	return runAnswer{
		RunID: r.ID, Lock: r.Lock.Name, LockKey: r.Lock.Key, Key: r.Key, Host: r.Host.Name, PID: r.PID,
		ScheduledAt: r.ScheduledAt, StartedAt: r.StartedAt,
	}
}

func encodeFeedback(f runner.Feedback) feedbackBody {
	b := feedbackBody{Answer: feedbackNames()[f.Answer]}
	if f.RetryAfter >= 0 {
		d := duration(f.RetryAfter)
		b.RetryAfter = &d
	}
	return b
}

func (b feedbackBody) feedback() (runner.Feedback, error) {
	a := slices.Index(feedbackNames(), b.Answer)
	if a < 0 {
		return runner.Feedback{}, fmt.Errorf("%w: answer %q is none of %q", runner.ErrInvalid, b.Answer, feedbackNames())
	}
	f := runner.Feedback{Answer: runner.Answer(a), RetryAfter: -1}
	if b.RetryAfter != nil {
		f.RetryAfter = time.Duration(*b.RetryAfter)
	}
	return f, nil
}
