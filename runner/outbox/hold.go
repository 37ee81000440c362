package outbox

import (
	"time"

	"github.com/oncectl/oncectl/runner"
)

// hold keeps all rows back while the receiver is not reached: that is no row's
// fault, so that it costs none of them a try.
type hold struct {
	rounds int // in a row
	until  time.Time
}

func (h *hold) over(now time.Time) bool { return !now.Before(h.until) }

// hopeless reports whether a run that ends when there is nothing left should
// end now.
func (h *hold) hopeless(now time.Time, o Options) bool {
	return h.rounds > o.Retries || h.until.Sub(now) > o.MaxWait
}

// receiverAway reports whether a try did not reach the receiver, or the receiver
// wants no request for longer than a try waits; then the row stays in hand and
// no other one is begun for a while.
func (s *state) receiverAway(f finished) bool {
	r := f.result
	unsent := r.Attempts > 0 && r.Status == 0
	silenced := r.Attempts == 0 && !r.RetryAt.IsZero()
	if r.Outcome != runner.Failed || r.Interrupted || !unsent && !silenced {
		return false
	}
	now := time.Now()
	if s.hold.over(now) {
		s.hold.rounds++
		s.hold.until = now.Add(s.backoff(s.hold.rounds))
		s.Log.Info("the receiver is not reached", "error", r.LastError)
	}
	if r.RetryAt.After(s.hold.until) {
		s.hold.until = r.RetryAt
	}
	s.result.LastError = r.LastError
	s.hand.again(f.row)
	if s.stopping {
		s.back = append(s.back, s.hand.dropWaiting()...)
	}
	return true
}
