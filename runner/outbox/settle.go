package outbox

import (
	"context"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// settle marks what is finished and gives back what is not wanted, in one
// transaction. Only after that their places are free, so that a publisher that
// is killed leaves at most Concurrency rows that were published and not marked.
func (s *state) settle() {
	var marks []runner.OutboxMark
	var rows []finished // of the first marks
	for _, f := range s.finished {
		if s.receiverAway(f) {
			continue
		}
		marks, rows = append(marks, s.judge(f)), append(rows, f)
	}
	s.finished = nil
	for i, f := range rows {
		if s.holdsUp(marks[i].Verdict) {
			s.back = append(s.back, s.hand.dropKey(f.row)...)
		}
	}
	for _, id := range s.back {
		marks = append(marks, runner.OutboxMark{ID: id, Verdict: runner.OutboxBack})
	}
	s.back = nil
	if len(marks) == 0 {
		return
	}
	// Also after an interrupt.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), recordTimeout)
	defer cancel()
	owned, err := s.Store.Mark(ctx, s.Token, marks)
	if err != nil {
		s.unmarked(rows, err)
		return
	}
	for i, f := range rows {
		s.marked(f, marks[i], owned[i])
	}
}

// holdsUp reports whether what follows a row in its key must wait.
func (s *state) holdsUp(v runner.OutboxVerdict) bool {
	return v == runner.OutboxAgain || v == runner.OutboxBack || v == runner.OutboxDead && !s.SkipFailed
}

// marked follows up a mark.
func (s *state) marked(f finished, m runner.OutboxMark, owned bool) {
	id := f.row.ID
	switch {
	case !owned:
		s.result.Lost++
		s.Log.Warn("the lease of a row had ended before it could be marked: it may go out again", "event", f.row.EventID())
		s.back = append(s.back, s.hand.dropKey(f.row)...)
		s.look.dirty, s.look.exhausted = true, false
		return
	case s.holdsUp(m.Verdict):
		// What followed it was given back with it.
		s.look.dirty = f.row.Keyed || s.look.dirty
	default:
		s.look.dirty = s.hand.advance(f.row) || s.look.dirty
	}
	s.look.exhausted = false
	if !m.Free {
		delete(s.refusals, id)
	}
	switch m.Verdict {
	case runner.OutboxSent:
		s.result.Sent++
	case runner.OutboxAgain:
		s.result.Tries++
		s.retries[id] = time.Now().Add(m.After)
		if m.Free {
			s.refusals[id] = refusals{s.refusals[id].free + 1, s.delivered}
		}
		s.Log.Info("a row is tried again", "event", f.row.EventID(), "after", m.After, "error", m.LastError)
	case runner.OutboxDead:
		s.result.Failed++
		s.Log.Info("a row has failed", "event", f.row.EventID(), "error", m.LastError)
	}
	if m.LastError != "" {
		s.result.LastError = m.LastError
	}
}

// unmarked names each row of which it could not be recorded what became.
func (s *state) unmarked(rows []finished, err error) {
	for _, f := range rows {
		s.result.Lost++
		s.Log.Error("what became of a row could not be recorded: it goes out again", "event", f.row.EventID(),
			"outcome", string(f.result.Outcome), "error", err)
		s.hand.dropKey(f.row)
	}
	s.fail(err)
}

// refusals of a row that did not count, and what the receiver had taken of
// others at the last of them.
type refusals struct {
	free int
	seen uint64
}

// maxFree bounds the tries of a row that do not count; see delivery.
const maxFree = 100

// isFree reports whether a refusal says nothing about the row, since others
// were taken meanwhile.
func (s *state) isFree(f finished) bool {
	last, again := s.refusals[f.row.ID]
	if !again {
		last.seen = f.seen
	}
	return s.delivered > last.seen && last.free < maxFree
}

// judge decides what becomes of a row.
func (s *state) judge(f finished) runner.OutboxMark {
	r := f.result
	m := runner.OutboxMark{ID: f.row.ID, LastError: r.LastError, Doubtful: r.Outcome == runner.InDoubt}
	switch {
	case r.Outcome == runner.Delivered:
		s.hold = hold{}
		return runner.OutboxMark{ID: f.row.ID, Verdict: runner.OutboxSent}
	case r.Interrupted && r.Outcome == runner.Failed:
		m.Verdict = runner.OutboxBack
		return m
	case r.Interrupted:
		m.Verdict, m.Free = runner.OutboxAgain, true
		return m
	}
	s.hold = hold{}
	attempts := f.row.Attempts + 1
	m.Free = r.Status == statusTooMany && s.isFree(f)
	if !m.Free && (attempts > s.Retries || r.Attempts == 0) {
		m.Verdict, m.DeadLetter = runner.OutboxDead, deadLetter(f.row, r, attempts, s.Request, s.NoPayload)
		return m
	}
	m.Verdict = runner.OutboxAgain
	if !m.Free {
		m.After = s.backoff(attempts)
	}
	if !r.RetryAt.IsZero() {
		m.After = max(m.After, time.Until(r.RetryAt))
	}
	return m
}

// statusTooMany is 429: not this row's fault as long as others are taken.
const statusTooMany = 429

// deadLetter is what a person sees of a row that has failed.
func deadLetter(row runner.OutboxRow, r runner.DeliveryResult, attempts int, request []byte, noPayload bool) *runner.DeadLetter {
	d := &runner.DeadLetter{
		Kind: runner.KindOutbox, Name: row.Topic, EventID: row.EventID(), PayloadHash: runner.HashBytes(row.Payload),
		Request: request, LastError: r.LastError, Attempts: attempts, Certainty: runner.Failed, RetryAt: r.RetryAt,
	}
	if row.Doubtful || r.Outcome == runner.InDoubt {
		d.Certainty = runner.InDoubt
	}
	if !noPayload {
		d.Payload = row.Payload
	}
	return d
}

// backoff is the wait before the try after so many failed ones, with up to a
// tenth of jitter.
func (s *state) backoff(attempts int) time.Duration {
	d := s.Backoff
	for range attempts - 1 {
		if d >= s.BackoffMax {
			break
		}
		d *= 2
	}
	d = min(d, s.BackoffMax)
	return d + time.Duration(s.Random()*float64(d)/10)
}

// renew prolongs the leases of the rows in hand. A store that is away is no
// reason to stop what is in flight: leases last for two more tries.
func (s *state) renew(now time.Time) {
	if s.hand.empty() || now.Before(s.renewAt) {
		return
	}
	s.renewAt = now.Add(LeaseFor / 3)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), LeaseFor/3)
	defer cancel()
	ids := s.hand.ids()
	held, err := s.Store.RenewLeases(ctx, s.Token, ids, LeaseFor)
	if err != nil {
		s.Log.Warn("renewing leases of the outbox", "rows", len(ids), "error", err)
		return
	}
	lost := make(map[int64]bool)
	for _, id := range ids {
		lost[id] = true
	}
	for _, id := range held {
		delete(lost, id)
	}
	if len(lost) > 0 {
		s.Log.Warn("leases of the outbox had ended before they were renewed", "rows", len(lost))
		s.back = append(s.back, s.hand.lose(lost)...)
	}
}
