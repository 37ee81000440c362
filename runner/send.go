package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// SendStore is what sends need of a store, or of the run above them.
type SendStore interface {
	ClaimRenewer
	Lookup(ctx context.Context, ids []EventID) ([]Claim, error)
}

// SendOrder is a message with what its dead letter will need.
type SendOrder struct {
	Message
	Target string // the URL's host: the dead letter's name
	// Request is what is needed to send it again, as JSON, without secrets.
	Request []byte
	// NoPayload keeps the body out of the dead letter.
	NoPayload bool
	// InDoubt sends an event in doubt again, on somebody's own account.
	InDoubt bool

	// doubt says that the claim was taken over in doubt: an earlier sender may
	// have delivered it, and only success takes that back.
	doubt bool
}

// mayRepeat reports whether what is in doubt is sent again: the receiver can
// tell a repeat, or a person has looked.
func (o SendOrder) mayRepeat() bool { return o.Idempotent || o.InDoubt }

func (o SendOrder) hash() string { return HashBytes(o.Body) }

// SendAnswer is what became of an order.
type SendAnswer int

const (
	// Sent: it was delivered now.
	Sent SendAnswer = iota
	// SentBefore: it had been delivered.
	SentBefore
	// BeingSent: a live sender has it.
	BeingSent
	// NotSent: it was not delivered and is a dead letter.
	NotSent
	// MaybeSent: it is in doubt, as of now or since before.
	MaybeSent
	// GivenBack: the sender was interrupted before it was sent.
	GivenBack
)

// SendResult is the answer to one order.
type SendResult struct {
	ID     EventID
	Answer SendAnswer
	// Delivery is how the delivery went, where there was one.
	Delivery DeliveryResult
	// Before is the claim that was there already, where that is the answer.
	Before *Claim
	// Err says why the order was refused or its outcome not recorded:
	// ErrOtherPayload, ErrInvalid (a bare claim that is not this run's),
	// ErrUnavailable and the like.
	Err error
}

// Sender sends messages once: it claims an event before it delivers it, keeps
// the claim alive meanwhile, and records the outcome.
type Sender struct {
	Store SendStore
	HTTP  Deliverer
	Owner string
	// Token is this process's: its claims are told from those of others by it.
	Token Token
	Log   *slog.Logger
}

// Send sends one message.
func (s *Sender) Send(ctx context.Context, o SendOrder) SendResult {
	// Again, since a claim that failed elsewhere in between may be taken over,
	// and what is in doubt only by who knows that it is.
	for range 3 {
		won, err := s.Store.Claim(ctx, s.claimRequest([]SendOrder{o}))
		if err != nil {
			return SendResult{ID: o.ID, Err: fmt.Errorf("claiming %q: %w", o.ID, err)}
		}
		if won[0] {
			return s.deliver(ctx, o)
		}
		found, err := s.Store.Lookup(ctx, []EventID{o.ID})
		if err != nil {
			return SendResult{ID: o.ID, Err: fmt.Errorf("looking up %q: %w", o.ID, err)}
		}
		switch {
		case len(found) == 0 || takesFailed(o, found[0]):
		case takesDoubt(o, found[0]):
			o.doubt = true
		default:
			return answerBefore(o, found[0])
		}
	}
	return SendResult{ID: o.ID, Err: fmt.Errorf("claiming %q: %w: others keep taking it", o.ID, ErrUndecided)}
}

// takesFailed reports whether o may take over c since that failed.
func takesFailed(o SendOrder, c Claim) bool { return c.Outcome == Failed && samePayload(o, c) }

// takesDoubt reports whether o, which has not tried to yet, may take over c,
// which is in doubt.
func takesDoubt(o SendOrder, c Claim) bool {
	return c.State() == string(InDoubt) && samePayload(o, c) && o.mayRepeat() && !o.doubt
}

func samePayload(o SendOrder, c Claim) bool { return c.PayloadHash == "" || c.PayloadHash == o.hash() }

// claimRequest claims orders for this sender.
func (s *Sender) claimRequest(orders []SendOrder) ClaimRequest {
	req := ClaimRequest{Token: s.Token, Owner: s.Owner, Expires: LiveExpiry, Take: TakeFailed | TakeBareOfRun}
	for _, o := range orders {
		req.IDs = append(req.IDs, o.ID)
		req.PayloadHashes = append(req.PayloadHashes, o.hash())
		req.Targets = append(req.Targets, o.Target)
		if o.doubt {
			req.Take |= TakeInDoubt | TakeExpired
		}
	}
	return req
}

// answerBefore answers an order whose event somebody had claimed.
func answerBefore(o SendOrder, c Claim) SendResult {
	res := SendResult{ID: o.ID, Before: &c}
	switch {
	case !samePayload(o, c):
		res.Err = fmt.Errorf("sending %q: %w", o.ID, ErrOtherPayload)
	case c.State() == string(Delivered):
		res.Answer = SentBefore
	case c.State() == string(InDoubt):
		res.Answer = MaybeSent
	case c.State() == "unfinished":
		res.Answer = BeingSent
	default:
		res.Err = fmt.Errorf("sending %q: %w: it was claimed by %s without being sent, and not in this run", o.ID, ErrInvalid, c.Owner)
	}
	return res
}

// deliver delivers an order that was won, and records the outcome.
func (s *Sender) deliver(ctx context.Context, o SendOrder) SendResult {
	stop := KeepAlive(ctx, LiveExpiry/3, func(ctx context.Context) { s.renew(ctx, []EventID{o.ID}) })
	d := s.attempt(ctx, o)
	stop()
	res := SendResult{ID: o.ID, Delivery: d, Answer: answerOf(d)}
	// A signal that ended the delivery must not keep its outcome from being
	// recorded.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if res.Answer == GivenBack {
		_, err := s.Store.GiveBack(ctx, GiveBackRequest{IDs: []EventID{o.ID}, Token: s.Token})
		res.Err = unrecorded(o, err)
		return res
	}
	answers, err := s.Store.Settle(ctx, SettleRequest{Settlements: []Settlement{settlementOf(o, d)}, Token: s.Token})
	if err == nil {
		err = ownership(answers[0])
	}
	res.Err = unrecorded(o, err)
	return res
}

// attempt delivers an order. Of an event that was in doubt before, it is not
// known that it was not delivered, whatever became of it this time.
func (s *Sender) attempt(ctx context.Context, o SendOrder) DeliveryResult {
	d := s.HTTP.Deliver(ctx, o.Message)
	if o.doubt && d.Outcome == Failed {
		d.Outcome = InDoubt
		d.LastError = "an earlier sender may have delivered it; now: " + d.LastError
	}
	return d
}

// answerOf is the answer that a delivery gives.
func answerOf(d DeliveryResult) SendAnswer {
	switch {
	case d.Outcome == Delivered:
		return Sent
	case d.Outcome == InDoubt:
		return MaybeSent
	case d.Interrupted:
		return GivenBack
	}
	return NotSent
}

// settlementOf is what is recorded of a delivery.
func settlementOf(o SendOrder, d DeliveryResult) Settlement {
	s := Settlement{ID: o.ID, Outcome: d.Outcome}
	if d.Outcome == Delivered {
		return s
	}
	s.DeadLetter = &DeadLetter{
		Kind: KindSend, Name: o.Target, EventID: o.ID, PayloadHash: o.hash(), Request: o.Request,
		LastError: d.LastError, Attempts: d.Attempts, Certainty: d.Outcome, RetryAt: d.RetryAt,
	}
	if !o.NoPayload {
		s.DeadLetter.Payload = o.Body
	}
	return s
}

// ownership is the error of an outcome that was not recorded.
func ownership(a SettleAnswer) error {
	if a == Settled || a == AlreadySettled {
		return nil
	}
	return errNotOwner
}

// unrecorded names what a person needs to find the event again.
func unrecorded(o SendOrder, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("recording the outcome of %q (payload SHA-256 %s): %w", o.ID, o.hash(), err)
}

// renew renews claims in flight. A store that is away is no reason to stop
// what is being sent: the claim lasts for two more tries.
func (s *Sender) renew(ctx context.Context, ids []EventID) {
	ctx, cancel := context.WithTimeout(ctx, LiveExpiry/3)
	defer cancel()
	if _, err := s.Store.Renew(ctx, ids, s.Token, LiveExpiry); err != nil && !errors.Is(err, context.Canceled) {
		s.Log.Warn("renewing claims", "events", len(ids), "error", err)
	}
}
