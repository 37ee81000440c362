package outbox

import (
	"context"
	"math"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// look says when and where to look for rows next.
type look struct {
	// dirty: there may be rows that can be leased at once.
	dirty bool
	// exhausted: the last look was at the whole outbox and found nothing.
	exhausted bool
	from      runner.OutboxCursor
	began     time.Time // when the beginning was last looked at
	next      time.Time // when to poll
	empty     int       // looks in a row that found nothing
}

const (
	pollLeast  = 100 * time.Millisecond
	pollMost   = time.Second
	pollSteady = 20 // polls at pollLeast after the last row
	pollEasing = 1.2
)

// ease is the wait after n looks in a row that found nothing: short while rows
// come, then longer and longer.
func ease(n int) time.Duration {
	if n <= pollSteady {
		return pollLeast
	}
	// Beyond a hundred steps the power is larger than any duration.
	factor := math.Pow(pollEasing, float64(min(n-pollSteady, 100)))
	return min(time.Duration(factor*float64(pollLeast)), pollMost)
}

// start is the place where the next look begins.
func (l *look) start(now time.Time) runner.OutboxCursor {
	if now.Sub(l.began) >= rewind {
		l.from = runner.OutboxCursor{}
	}
	if l.from == (runner.OutboxCursor{}) {
		l.began = now
	}
	return l.from
}

// found takes a look's answer into account.
func (l *look) found(rows []runner.OutboxRow, asked int, next runner.OutboxCursor, now time.Time) {
	whole := l.from == runner.OutboxCursor{} && next == runner.OutboxCursor{}
	l.exhausted = whole && len(rows) == 0
	l.dirty = !whole || len(rows) == asked && !seconds(rows)
	l.from = next
	if len(rows) > 0 {
		l.empty = 0
	} else if whole {
		l.empty++
	}
	l.next = now.Add(ease(l.empty))
}

// seconds reports whether there are two rows of one key. A lease takes the first
// rows of all keys, and those without one, before any second row: until a key in
// hand is at its end there is nothing else to be found, and a look at many keys
// is the dearest of all.
func seconds(rows []runner.OutboxRow) bool {
	seen := make(map[string]bool, len(rows))
	for _, r := range rows {
		if r.Keyed && seen[r.Key] {
			return true
		}
		seen[r.Key] = seen[r.Key] || r.Keyed
	}
	return false
}

// wants reports whether there is room for more rows: not for a few at a time,
// which would cost as much as many.
func (s *state) wants() bool {
	asks := s.asks()
	return !s.stopping && len(s.hand.ready) < s.Concurrency && asks > 0 && (2*asks >= s.Batch || s.idle() || s.Limit > 0)
}

// idle reports whether there is nothing to publish.
func (s *state) idle() bool { return s.flying == 0 && len(s.hand.ready) == 0 }

// asks is how many more rows fit.
func (s *state) asks() int {
	n := s.Batch - len(s.hand.rows)
	if s.Limit > 0 {
		n = min(n, s.Limit-s.result.Sent-s.result.Failed-len(s.hand.rows))
	}
	return n
}

// lease looks for rows if there is room and a reason to.
func (s *state) lease(now time.Time) {
	s.renew(now)
	polls := !s.until.IsZero() && !now.Before(s.look.next)
	if !s.wants() || !s.hold.over(now) || !s.look.dirty && !polls {
		return
	}
	asked := s.asks()
	// Not cut off by an interrupt, so that no row is leased to nobody.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), recordTimeout)
	defer cancel()
	rows, next, err := s.Store.Lease(ctx, runner.OutboxLease{
		Token: s.Token, Limit: asked, Topic: s.Topic, For: LeaseFor, SkipFailed: s.SkipFailed,
		From: s.look.start(now), Idle: s.look.empty > 0,
	})
	if err != nil {
		s.fail(err)
		return
	}
	if s.hand.empty() {
		s.renewAt = now.Add(LeaseFor / 3)
	}
	s.hand.add(rows)
	s.look.found(rows, asked, next, time.Now())
	for _, r := range rows {
		delete(s.retries, r.ID)
	}
}
