package outbox

import (
	"context"
	"runtime"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// state is a running Drain. It is owned by one goroutine; rows are published in
// others and come back on done.
type state struct {
	*Drain
	ctx     context.Context
	publish context.Context // of what is in flight: ends also with the time
	cancel  context.CancelFunc
	until   time.Time // zero: until there is nothing left

	hand     hand
	flying   int
	done     chan finished
	finished []finished // to be marked
	back     []int64    // to be given back

	look      look
	hold      hold
	retries   map[int64]time.Time // our rows that wait for their next try
	refusals  map[int64]refusals  // of rows in hand or waiting
	delivered uint64
	renewAt   time.Time

	stopping bool
	result   Result
	err      error // the first of the store's
}

// finished is a row with what became of it.
type finished struct {
	row    runner.OutboxRow
	result runner.DeliveryResult
	seen   uint64 // delivered by this run when the try began
}

func newState(ctx context.Context, d *Drain) *state {
	s := &state{
		Drain: d, ctx: ctx, hand: newHand(), done: make(chan finished, d.Concurrency),
		look: look{dirty: true}, retries: map[int64]time.Time{}, refusals: map[int64]refusals{},
	}
	s.publish, s.cancel = context.WithCancel(ctx)
	if d.For > 0 {
		s.until = time.Now().Add(d.For)
	}
	return s
}

// stop takes no more rows and gives back those that were not begun.
func (s *state) stop(why Reason) {
	if s.stopping {
		return
	}
	s.stopping, s.result.Ended, s.result.Away = true, why, s.hold.rounds > 0
	s.back = append(s.back, s.hand.dropWaiting()...)
}

// fail ends the run for an error of the store. Rows that cannot be given back
// are anyone's when their leases end.
func (s *state) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.stop(StoreFailed)
	s.result.Ended = StoreFailed
	s.back = nil
}

// notice looks for reasons to end.
func (s *state) notice(now time.Time) {
	switch {
	case s.stopping:
	case s.ctx.Err() != nil:
		s.stop(Interrupted)
	case !s.until.IsZero() && !now.Before(s.until):
		s.stop(TimeOver)
		s.cancel()
	case s.Limit > 0 && s.result.Sent+s.result.Failed >= s.Limit:
		s.stop(BatchLimit)
	case s.until.IsZero() && s.flying == 0 && len(s.finished) == 0 && s.hold.hopeless(now, s.Options):
		s.stop(Unreachable)
	}
	for id, due := range s.retries {
		if !now.Before(due) {
			delete(s.retries, id)
			s.look.dirty, s.look.from = true, runner.OutboxCursor{}
		}
	}
}

// start publishes rows in hand while there is room.
func (s *state) start(now time.Time) {
	for !s.stopping && s.hold.over(now) && s.flying+len(s.finished) < s.Concurrency {
		row, ok := s.hand.next()
		if !ok {
			return
		}
		s.flying++
		seen := s.delivered
		go func() { s.done <- finished{row, s.Publisher.Publish(s.publish, row), seen} }()
	}
}

// over reports whether there is nothing left to do. Before it says that there is
// nothing left to publish it looks once more.
func (s *state) over(now time.Time) bool {
	if s.flying > 0 || len(s.finished) > 0 || len(s.back) > 0 || !s.hand.empty() {
		return false
	}
	if s.stopping {
		return true
	}
	if !s.until.IsZero() || len(s.retries) > 0 || !s.hold.over(now) {
		return false
	}
	if s.look.exhausted {
		s.result.Ended = Empty
		return true
	}
	s.look.dirty = true
	return false
}

// wait returns when there may be something to do.
func (s *state) wait() {
	timer := time.NewTimer(time.Until(s.nextTime()))
	defer timer.Stop()
	interrupt := s.ctx.Done()
	if s.stopping {
		interrupt = nil
	}
	select {
	case f := <-s.done:
		s.take(f)
		runtime.Gosched()
	case <-interrupt:
		return
	case <-timer.C:
	}
	for s.drain() {
		// Those that are about to end are marked with it: a mark costs as much for
		// one row as for many.
		runtime.Gosched()
	}
}

// drain takes what has ended, and reports whether there was any.
func (s *state) drain() (some bool) {
	for {
		select {
		case f := <-s.done:
			s.take(f)
			some = true
		default:
			return some
		}
	}
}

func (s *state) take(f finished) {
	s.flying--
	if f.result.Outcome == runner.Delivered {
		s.delivered++
	}
	s.finished = append(s.finished, f)
}

// nextTime is when to look again if nothing happens before.
func (s *state) nextTime() time.Time {
	next := time.Now().Add(time.Hour)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if len(s.back) > 0 {
		earlier(time.Now())
	}
	if !s.hand.empty() {
		earlier(s.renewAt)
	}
	if s.stopping {
		return next
	}
	if !s.until.IsZero() {
		earlier(s.until)
		if s.wants() && s.hold.over(time.Now()) {
			earlier(s.look.next)
		}
	}
	if s.wants() && s.look.dirty && s.hold.over(time.Now()) {
		earlier(time.Now())
	}
	if !s.hold.over(time.Now()) {
		earlier(s.hold.until)
	}
	for _, due := range s.retries {
		earlier(due)
	}
	return next
}
