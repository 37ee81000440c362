package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a store of claims for the tests of sends.
type memory struct {
	mu      sync.Mutex
	rows    map[EventID]*Claim
	letters []*DeadLetter
	err     error // what every call answers, if set
	open    int   // claimed and without outcome
	most    int   // the most there ever were
}

func newMemory() *memory { return &memory{rows: map[EventID]*Claim{}} }

func (m *memory) Claim(_ context.Context, req ClaimRequest) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	won := make([]bool, len(req.IDs))
	for i, id := range req.IDs {
		c, there := m.rows[id]
		hash := req.PayloadHashes[i]
		if there && (c.PayloadHash != "" && c.PayloadHash != hash || !m.takes(req.Take, c)) {
			continue
		}
		won[i] = true
		m.rows[id] = &Claim{ID: id, Token: req.Token, PayloadHash: hash, Owner: req.Owner, ExpiresAt: time.Now().Add(req.Expires)}
		m.open++
		m.most = max(m.most, m.open)
	}
	return won, nil
}

func (m *memory) takes(take TakeOver, c *Claim) bool {
	return take&TakeFailed != 0 && c.Outcome == Failed ||
		take&TakeInDoubt != 0 && c.Outcome == InDoubt ||
		take&TakeExpired != 0 && c.Outcome == "" && !c.ExpiresAt.IsZero() && c.ExpiresAt.Before(time.Now())
}

func (m *memory) Settle(_ context.Context, req SettleRequest) ([]SettleAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	out := make([]SettleAnswer, len(req.Settlements))
	for i, s := range req.Settlements {
		c := m.rows[s.ID]
		if c == nil || c.Token != req.Token {
			out[i] = NotOwner
			continue
		}
		c.Outcome = s.Outcome
		m.open--
		if s.DeadLetter != nil {
			m.letters = append(m.letters, s.DeadLetter)
		}
	}
	return out, nil
}

func (m *memory) GiveBack(_ context.Context, req GiveBackRequest) ([]SettleAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range req.IDs {
		delete(m.rows, id)
		m.open--
	}
	return make([]SettleAnswer, len(req.IDs)), m.err
}

func (m *memory) Renew(_ context.Context, ids []EventID, _ Token, d time.Duration) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.rows[id].ExpiresAt = time.Now().Add(d)
	}
	return len(ids), m.err
}

func (m *memory) Lookup(_ context.Context, ids []EventID) ([]Claim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Claim
	for _, id := range ids {
		if c := m.rows[id]; c != nil {
			found := *c
			found.Expired = !c.ExpiresAt.IsZero() && c.ExpiresAt.Before(time.Now())
			out = append(out, found)
		}
	}
	return out, m.err
}

// receiver answers deliveries as a test wants and counts them.
type receiver struct {
	mu     sync.Mutex
	got    map[EventID]int
	flying int
	most   int
	answer func(ctx context.Context, m Message) DeliveryResult
}

func (r *receiver) Deliver(ctx context.Context, m Message) DeliveryResult {
	r.mu.Lock()
	if r.got == nil {
		r.got = map[EventID]int{}
	}
	r.got[m.ID]++
	r.flying++
	r.most = max(r.most, r.flying)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.flying--
		r.mu.Unlock()
	}()
	if r.answer == nil {
		return DeliveryResult{Outcome: Delivered, Attempts: 1}
	}
	return r.answer(ctx, m)
}

func newSender(m *memory, r *receiver) *Sender {
	return &Sender{Store: m, HTTP: r, Owner: "here/1", Token: NewToken(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func order(id, body string) SendOrder {
	return SendOrder{Message: Message{ID: EventID(id), Body: []byte(body)}, Target: "host"}
}

func TestSend_WhenTheEventComesAgain_SendsOnce(t *testing.T) {
	m, r := newMemory(), &receiver{}
	first := newSender(m, r).Send(t.Context(), order("a", "x"))
	second := newSender(m, r).Send(t.Context(), order("a", "x"))
	if first.Answer != Sent || second.Answer != SentBefore || r.got["a"] != 1 {
		t.Errorf("%+v %+v, received %d", first, second, r.got["a"])
	}
	other := newSender(m, r).Send(t.Context(), order("a", "y"))
	if !errors.Is(other.Err, ErrOtherPayload) || r.got["a"] != 1 {
		t.Errorf("%+v, received %d", other, r.got["a"])
	}
}

func TestSend_WhenThirtyComeAtOnce_SendsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		r := &receiver{answer: func(context.Context, Message) DeliveryResult {
			time.Sleep(2 * time.Minute) // longer than any claim lasts unrenewed
			return DeliveryResult{Outcome: Delivered}
		}}
		var wg sync.WaitGroup
		answers := make([]SendResult, 30)
		for i := range answers {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Second)
				answers[i] = newSender(m, r).Send(t.Context(), order("a", "x"))
			})
		}
		wg.Wait()
		for i, a := range answers {
			if a.Err != nil || (i == 0) != (a.Answer == Sent) || (i > 0) != (a.Answer == BeingSent) {
				t.Errorf("%d: %+v", i, a)
			}
		}
		if r.got["a"] != 1 {
			t.Errorf("received %d", r.got["a"])
		}
	})
}

func TestSend_WhenItFailedBefore_IsSentAgain(t *testing.T) {
	m := newMemory()
	r := &receiver{answer: func(context.Context, Message) DeliveryResult {
		return DeliveryResult{Outcome: Failed, Attempts: 3, LastError: "404"}
	}}
	if a := newSender(m, r).Send(t.Context(), order("a", "x")); a.Answer != NotSent {
		t.Fatalf("%+v", a)
	}
	d := m.letters[0]
	if d.Attempts != 3 || d.LastError != "404" || string(d.Payload) != "x" || d.PayloadHash != HashBytes([]byte("x")) || d.Certainty != Failed {
		t.Errorf("dead letter %+v", d)
	}
	r.answer = nil
	if a := newSender(m, r).Send(t.Context(), order("a", "x")); a.Answer != Sent {
		t.Errorf("%+v", a)
	}
}

func TestSend_WhenInDoubt_IsNamedAndSentOnlyOnPurpose(t *testing.T) {
	m := newMemory()
	r := &receiver{answer: func(context.Context, Message) DeliveryResult {
		return DeliveryResult{Outcome: InDoubt, Attempts: 1, LastError: "timeout"}
	}}
	newSender(m, r).Send(t.Context(), order("a", "x"))
	r.answer = nil
	if a := newSender(m, r).Send(t.Context(), order("a", "x")); a.Answer != MaybeSent || a.Before == nil || r.got["a"] != 1 {
		t.Errorf("%+v", a)
	}
	o := order("a", "x")
	o.Idempotent = true
	if a := newSender(m, r).Send(t.Context(), o); a.Answer != Sent || r.got["a"] != 2 {
		t.Errorf("%+v", a)
	}
}

func TestSend_WhenTheStoreIsGoneAtTheEnd_NamesTheEventAndItsHash(t *testing.T) {
	m := newMemory()
	r := &receiver{answer: func(context.Context, Message) DeliveryResult {
		m.err = ErrUnavailable
		return DeliveryResult{Outcome: Delivered}
	}}
	a := newSender(m, r).Send(t.Context(), order("a", "x"))
	if !errors.Is(a.Err, ErrUnavailable) || a.Answer != Sent {
		t.Fatalf("%+v", a)
	}
	want := fmt.Sprintf("recording the outcome of %q (payload SHA-256 %s)", "a", HashBytes([]byte("x")))
	if got := a.Err.Error(); len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("%s", got)
	}
}

func TestSend_WhenBareClaimedElsewhere_IsRefused(t *testing.T) {
	m := newMemory()
	m.rows["a"] = &Claim{ID: "a", Owner: "there/2"}
	a := newSender(m, &receiver{}).Send(t.Context(), order("a", "x"))
	if !errors.Is(a.Err, ErrInvalid) {
		t.Errorf("%+v", a)
	}
}

// runBatch sends ids 0..n-1 and returns what became of each.
func runBatch(t *testing.T, b *Batch, ids []string) (map[EventID][]SendResult, error) {
	t.Helper()
	orders := make(chan SendOrder)
	go func() {
		defer close(orders)
		for _, id := range ids {
			select {
			case orders <- order(id, "x"):
			case <-t.Context().Done():
				return
			case <-b.Stop:
				return
			}
		}
	}()
	got := map[EventID][]SendResult{}
	b.Orders = orders
	b.Emit = func(r SendResult) error { got[r.ID] = append(got[r.ID], r); return nil }
	err := b.Run(t.Context())
	for range orders { // what a failed batch left
	}
	return got, err
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("e%d", i)
	}
	return out
}

func TestBatch_WhenItRuns_SendsEachOnceAndClaimsJustInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		r := &receiver{answer: func(context.Context, Message) DeliveryResult {
			time.Sleep(20 * time.Millisecond)
			return DeliveryResult{Outcome: Delivered}
		}}
		ids := append(names(200), "e3", "e3", "e199")
		began := time.Now()
		got, err := runBatch(t, &Batch{Sender: newSender(m, r), Concurrency: 4}, ids)
		if err != nil || len(got) != 200 || m.most > 4 || r.most > 4 {
			t.Errorf("%v: %d events, %d claimed, %d in flight at the most", err, len(got), m.most, r.most)
		}
		for id, n := range r.got {
			if n != 1 {
				t.Errorf("%s was sent %d times", id, n)
			}
		}
		if took, ideal := time.Since(began), 50*20*time.Millisecond; took > ideal+20*time.Millisecond {
			t.Errorf("took %v, ideal is %v", took, ideal)
		}
	})
}

func TestBatch_WhenStopped_FinishesWhatIsInFlightAndGivesBackTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		stop := make(chan struct{})
		r := &receiver{answer: func(_ context.Context, msg Message) DeliveryResult {
			time.Sleep(time.Second)
			if msg.ID == "e1" {
				return DeliveryResult{Outcome: Failed, Interrupted: true, LastError: "interrupted"}
			}
			return DeliveryResult{Outcome: Delivered}
		}}
		go func() {
			time.Sleep(time.Second / 2)
			close(stop)
		}()
		got, err := runBatch(t, &Batch{Sender: newSender(m, r), Concurrency: 4, Stop: stop}, names(100))
		if err != nil || len(got) != 4 || got["e1"][0].Answer != GivenBack || got["e0"][0].Answer != Sent || len(m.rows) != 3 {
			t.Errorf("%v: %+v, %d claims", err, got, len(m.rows))
		}
	})
}

func TestBatch_WhenTheStoreIsGone_NamesEachEventOfWhichItCannotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		r := &receiver{}
		r.answer = func(_ context.Context, msg Message) DeliveryResult {
			time.Sleep(time.Second)
			m.mu.Lock()
			m.err = ErrUnavailable
			m.mu.Unlock()
			return DeliveryResult{Outcome: Delivered}
		}
		got, err := runBatch(t, &Batch{Sender: newSender(m, r), Concurrency: 4}, names(20))
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
		for i := range 4 {
			rs := got[EventID(fmt.Sprintf("e%d", i))]
			if len(rs) != 1 || !errors.Is(rs[0].Err, ErrUnavailable) {
				t.Errorf("e%d: %+v", i, rs)
			}
		}
	})
}

func TestBatch_WhenEventsAreDone_AnswersWithoutSending(t *testing.T) {
	m, r := newMemory(), &receiver{}
	ids := names(50)
	if _, err := runBatch(t, &Batch{Sender: newSender(m, r), Concurrency: 4}, ids); err != nil {
		t.Fatal(err)
	}
	got, err := runBatch(t, &Batch{Sender: newSender(m, r), Concurrency: 4}, ids)
	if err != nil || len(got) != 50 || got["e7"][0].Answer != SentBefore || r.got["e7"] != 1 {
		t.Errorf("%v: %+v", err, got["e7"])
	}
}
