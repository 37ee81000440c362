package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// What one sender left in doubt, another may be told to send again. That it was
// refused then, or was never sent, says nothing of the first time: the receiver
// may have processed it. Found by scripts/model/send.pml (-DFORGET_CLAIM).

// inDoubt leaves event a in doubt in a store.
func inDoubt(t *testing.T) (*memory, *receiver) {
	t.Helper()
	m := newMemory()
	r := &receiver{answer: func(context.Context, Message) DeliveryResult {
		return DeliveryResult{Outcome: InDoubt, Attempts: 1, LastError: "502"}
	}}
	if a := newSender(m, r).Send(t.Context(), order("a", "x")); a.Answer != MaybeSent {
		t.Fatalf("%+v", a)
	}
	return m, r
}

// onPurpose are the ways to send again what is in doubt.
var onPurpose = map[string]func(*SendOrder){
	"--in-doubt":   func(o *SendOrder) { o.InDoubt = true },
	"--idempotent": func(o *SendOrder) { o.Idempotent = true },
}

// withoutSuccess are the ends of a try by which the event was surely not
// processed this time.
var withoutSuccess = map[string]DeliveryResult{
	"refused":     {Outcome: Failed, Attempts: 1, Status: 429, LastError: "429"},
	"interrupted": {Outcome: Failed, Interrupted: true, LastError: "interrupted"},
}

// wantStillInDoubt: it is named so, and a plain send does not send it.
func wantStillInDoubt(t *testing.T, m *memory, r *receiver, a SendResult) {
	t.Helper()
	if a.Err != nil || a.Answer != MaybeSent {
		t.Errorf("answer %+v, want MaybeSent", a)
	}
	if c := m.rows["a"]; c == nil || c.Outcome != InDoubt {
		t.Errorf("the claim is %+v, want it in doubt", c)
	}
	last := m.letters[len(m.letters)-1]
	if last.Certainty != InDoubt || len(m.letters) != 2 || !strings.Contains(last.LastError, "earlier") {
		t.Errorf("%d dead letters, the last %+v", len(m.letters), last)
	}
	sent := r.got["a"]
	if a := newSender(m, r).Send(t.Context(), order("a", "x")); a.Answer != MaybeSent || r.got["a"] != sent {
		t.Errorf("a plain send: %+v, and it was sent %d times more", a, r.got["a"]-sent)
	}
}

func TestSend_WhenInDoubtAndAgainWithoutSuccess_StaysInDoubt(t *testing.T) {
	for how, mark := range onPurpose {
		for end, result := range withoutSuccess {
			t.Run(how+" "+end, func(t *testing.T) {
				m, r := inDoubt(t)
				r.answer = func(context.Context, Message) DeliveryResult { return result }
				o := order("a", "x")
				mark(&o)
				wantStillInDoubt(t, m, r, newSender(m, r).Send(t.Context(), o))
			})
		}
	}
}

func TestBatch_WhenInDoubtAndAgainWithoutSuccess_StaysInDoubt(t *testing.T) {
	for end, result := range withoutSuccess {
		t.Run(end, func(t *testing.T) {
			m, r := inDoubt(t)
			r.answer = func(context.Context, Message) DeliveryResult { return result }
			o := order("a", "x")
			o.Idempotent = true
			got := sendAll(t, m, r, o)
			if len(got) != 1 {
				t.Fatalf("%+v", got)
			}
			wantStillInDoubt(t, m, r, got[0])
		})
	}
}

// sendAll sends orders as a batch and returns the results.
func sendAll(t *testing.T, m *memory, r *receiver, orders ...SendOrder) (got []SendResult) {
	t.Helper()
	in := make(chan SendOrder, len(orders))
	for _, o := range orders {
		in <- o
	}
	close(in)
	b := &Batch{Sender: newSender(m, r), Concurrency: 4, Orders: in}
	b.Emit = func(r SendResult) error { got = append(got, r); return nil }
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestBatch_WhenInDoubt_IsSentOnlyOnPurpose(t *testing.T) {
	m, r := inDoubt(t)
	r.answer = nil
	got := sendAll(t, m, r, order("a", "x"), order("b", "x"))
	if len(got) != 2 || r.got["a"] != 1 || r.got["b"] != 1 || m.rows["a"].Outcome != InDoubt {
		t.Errorf("%+v, received %v", got, r.got)
	}
	a, b := order("a", "x"), order("b", "x")
	a.Idempotent, b.Idempotent = true, true
	got = sendAll(t, m, r, a, b)
	if len(got) != 2 || r.got["a"] != 2 || r.got["b"] != 1 || m.rows["a"].Outcome != Delivered {
		t.Errorf("%+v, received %v", got, r.got)
	}
}

// A failed event may be sent again, but not as another message.
func TestSend_WhenItFailedAndComesWithAnotherPayload_SaysSo(t *testing.T) {
	m := newMemory()
	r := &receiver{answer: func(context.Context, Message) DeliveryResult {
		return DeliveryResult{Outcome: Failed, Attempts: 1, LastError: "404"}
	}}
	newSender(m, r).Send(t.Context(), order("a", "x"))
	if a := newSender(m, r).Send(t.Context(), order("a", "y")); !errors.Is(a.Err, ErrOtherPayload) {
		t.Errorf("%+v", a)
	}
	if got := sendAll(t, m, r, order("a", "y")); len(got) != 1 || !errors.Is(got[0].Err, ErrOtherPayload) || r.got["a"] != 1 {
		t.Errorf("%+v, received %v", got, r.got)
	}
}
