package runner

import (
	"context"
	"fmt"
	"time"
)

// Batch sends many messages, at most Concurrency at a time. An event is claimed
// just before it is sent, and its outcome is recorded together with the next
// claims, so that a crash leaves at most Concurrency events in doubt.
type Batch struct {
	*Sender
	Concurrency int
	// Orders brings what is to be sent; closed at the end.
	Orders <-chan SendOrder
	// Stop is closed to take no more; what is in flight goes on. Nil: never.
	Stop <-chan struct{}
	// Emit is called with each result, in the order in which they are final,
	// never twice at once. Its error ends the batch as an interrupt does.
	Emit func(SendResult) error
}

// batchState is a running batch. It is owned by one goroutine; deliveries run in
// others and report on done.
type batchState struct {
	*Batch
	ctx      context.Context
	flying   map[EventID]string // claimed and not yet recorded, with the payload's hash
	done     chan delivered
	finished []delivered // to be recorded
	orders   <-chan SendOrder
	err      error // the first that ends the batch
}

type delivered struct {
	order  SendOrder
	result DeliveryResult
}

// Run sends what Orders brings until it is closed, Stop is, or the store is
// gone, and waits for what is in flight; ctx ends that too. The error is the
// store's or Emit's; what became of each order was given to Emit.
func (b *Batch) Run(ctx context.Context) error {
	s := &batchState{
		Batch: b, ctx: ctx, orders: b.Orders,
		flying: make(map[EventID]string), done: make(chan delivered, b.Concurrency),
	}
	renew := time.NewTicker(LiveExpiry / 3)
	defer renew.Stop()
	for s.orders != nil || len(s.flying) > 0 {
		wanted := s.next(renew.C)
		s.turn(wanted)
	}
	return s.err
}

// next waits until there is something to do for the store: orders for which
// there is room, or outcomes. It takes what is there without waiting for more.
func (s *batchState) next(renew <-chan time.Time) (wanted []SendOrder) {
	for len(wanted) == 0 && len(s.finished) == 0 && (s.orders != nil || len(s.flying) > 0) {
		select {
		case o, ok := <-s.openOrders(0):
			wanted = s.take(wanted, o, ok)
		case d := <-s.done:
			s.finished = append(s.finished, d)
		case <-renew:
			s.renewAll()
		case <-s.stopped():
			s.orders = nil
		}
	}
	for {
		select {
		case d := <-s.done:
			s.finished = append(s.finished, d)
			continue
		default:
		}
		select {
		case o, ok := <-s.openOrders(len(wanted)):
			wanted = s.take(wanted, o, ok)
		default:
			return wanted
		}
	}
}

// openOrders is the channel of orders while there is room for one more: what is
// claimed and unfinished, after the outcomes at hand are recorded, must not be
// more than Concurrency. Once Stop is closed there is none, even where orders
// are waiting.
func (s *batchState) openOrders(wanted int) <-chan SendOrder {
	select {
	case <-s.Stop:
		s.orders = nil
	default:
	}
	if len(s.flying)-len(s.finished)+wanted >= s.Concurrency {
		return nil
	}
	return s.orders
}

// stopped is Stop, until it was noticed.
func (s *batchState) stopped() <-chan struct{} {
	if s.orders == nil {
		return nil
	}
	return s.Stop
}

// take adds an order; the end of the orders ends the taking. An id that is in
// flight in this very batch is being sent by a live sender, us, and stands for
// one message here as elsewhere.
func (s *batchState) take(wanted []SendOrder, o SendOrder, ok bool) []SendOrder {
	if !ok {
		s.orders = nil
		return wanted
	}
	hash, again := s.flying[o.ID]
	for _, w := range wanted {
		if w.ID == o.ID {
			hash, again = w.hash(), true
		}
	}
	if !again {
		return append(wanted, o)
	}
	res := SendResult{ID: o.ID, Answer: BeingSent}
	if hash != o.hash() {
		res.Err = fmt.Errorf("sending %q: %w", o.ID, ErrOtherPayload)
	}
	s.emit(res)
	return wanted
}

// end takes no more orders; what is in flight goes on.
func (s *batchState) end(err error) {
	s.orders = nil
	if s.err == nil {
		s.err = err
	}
}

func (s *batchState) emit(r SendResult) {
	if err := s.Emit(r); err != nil {
		s.end(err)
	}
}

// turn records what is finished and claims what is wanted, and starts what was
// won.
func (s *batchState) turn(wanted []SendOrder) {
	if len(wanted) == 0 && len(s.finished) == 0 {
		return
	}
	finished := s.finished
	s.finished = nil
	// Outcomes are recorded also after an interrupt; new claims are not made.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), recordTimeout)
	defer cancel()
	won, err := s.exchange(ctx, finished, wanted)
	for _, d := range finished {
		delete(s.flying, d.order.ID)
	}
	if err != nil {
		s.failTurn(finished, wanted, err)
		return
	}
	s.start(ctx, wanted, won)
}

// start sends the orders that were won, and answers the others.
func (s *batchState) start(ctx context.Context, wanted []SendOrder, won []bool) {
	var lost []SendOrder
	for i, o := range wanted {
		if !won[i] {
			lost = append(lost, o)
			continue
		}
		s.flying[o.ID] = o.hash()
		go func() { s.done <- delivered{o, s.attempt(s.ctx, o)} }()
	}
	s.answerLost(ctx, lost)
}

// exchange is the round trip of a turn. What was interrupted before it was sent
// is given back first.
func (s *batchState) exchange(ctx context.Context, finished []delivered, wanted []SendOrder) (won []bool, err error) {
	settle := SettleRequest{Token: s.Token}
	var back []EventID
	var results, settled []SendResult
	for _, d := range finished {
		r := SendResult{ID: d.order.ID, Delivery: d.result, Answer: answerOf(d.result)}
		if r.Answer == GivenBack {
			back, results = append(back, r.ID), append(results, r)
			continue
		}
		settle.Settlements = append(settle.Settlements, settlementOf(d.order, d.result))
		settled = append(settled, r)
	}
	if len(back) > 0 {
		if _, err := s.Store.GiveBack(ctx, GiveBackRequest{IDs: back, Token: s.Token}); err != nil {
			return nil, err
		}
	}
	answers, won, err := s.turnOver(ctx, settle, wanted)
	if err != nil {
		return nil, err
	}
	for i, r := range settled {
		if own := ownership(answers[i]); own != nil {
			r.Err = fmt.Errorf("recording the outcome of %q: %w", r.ID, own)
		}
		results = append(results, r)
	}
	for _, r := range results {
		s.emit(r)
	}
	return won, nil
}

// turnOver settles and claims, in one round trip where the store can.
func (s *batchState) turnOver(ctx context.Context, settle SettleRequest, wanted []SendOrder) (answers []SettleAnswer, won []bool, err error) {
	t, ok := s.Store.(Turner)
	if ok && len(settle.Settlements) > 0 && len(wanted) > 0 {
		return t.Turn(ctx, settle, s.claimRequest(wanted))
	}
	if len(settle.Settlements) > 0 {
		if answers, err = s.Store.Settle(ctx, settle); err != nil {
			return nil, nil, err
		}
	}
	if len(wanted) > 0 {
		won, err = s.Store.Claim(ctx, s.claimRequest(wanted))
	}
	return answers, won, err
}

// failTurn names each event whose outcome could not be recorded, and ends the
// batch: without the store nothing more can be claimed.
func (s *batchState) failTurn(finished []delivered, wanted []SendOrder, err error) {
	for _, d := range finished {
		s.emit(SendResult{ID: d.order.ID, Delivery: d.result, Answer: answerOf(d.result), Err: unrecorded(d.order, err)})
	}
	for _, o := range wanted {
		s.emit(SendResult{ID: o.ID, Err: fmt.Errorf("claiming %q: %w", o.ID, err)})
	}
	s.end(err)
}

// answerLost answers the orders whose events somebody else had claimed. Those in
// doubt that may be repeated are claimed once more, as such.
func (s *batchState) answerLost(ctx context.Context, lost []SendOrder) {
	if len(lost) == 0 {
		return
	}
	ids := make([]EventID, len(lost))
	for i, o := range lost {
		ids[i] = o.ID
	}
	found, err := s.Store.Lookup(ctx, ids)
	if err != nil {
		s.failTurn(nil, lost, err)
		return
	}
	claims := make(map[EventID]Claim, len(found))
	for _, c := range found {
		claims[c.ID] = c
	}
	var doubtful []SendOrder
	for _, o := range lost {
		c, ok := claims[o.ID]
		switch {
		case !ok || takesFailed(o, c):
			s.emit(SendResult{ID: o.ID, Err: fmt.Errorf("claiming %q: %w: others keep taking it", o.ID, ErrUndecided)})
		case takesDoubt(o, c):
			o.doubt = true
			doubtful = append(doubtful, o)
		default:
			s.emit(answerBefore(o, c))
		}
	}
	if len(doubtful) == 0 {
		return
	}
	won, err := s.Store.Claim(ctx, s.claimRequest(doubtful))
	if err != nil {
		s.failTurn(nil, doubtful, err)
		return
	}
	s.start(ctx, doubtful, won)
}

// renewAll keeps the claims in flight alive.
func (s *batchState) renewAll() {
	ids := make([]EventID, 0, len(s.flying))
	for id := range s.flying {
		ids = append(ids, id)
	}
	if len(ids) > 0 {
		s.renew(context.WithoutCancel(s.ctx), ids)
	}
}
