package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// counter is a gate of n permits for all hosts, which a refusal holds shut.
type counter struct {
	free chan struct{}

	mu        sync.Mutex
	held      time.Time
	delivered uint64
	feedback  []runner.Feedback
}

func newCounter(n int) *counter {
	c := &counter{free: make(chan struct{}, n)}
	for range n {
		c.free <- struct{}{}
	}
	return c
}

func (c *counter) Acquire(ctx context.Context, host string, patience time.Duration) (runner.SendPermit, error) {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if !held.IsZero() {
		return nil, &runner.HeldError{Host: host, Until: held}
	}
	select {
	case <-c.free:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return countedPermit{c, c.delivered}, nil
}

type countedPermit struct {
	c         *counter
	delivered uint64
}

func (p countedPermit) Delivered() uint64 { return p.delivered }

func (p countedPermit) Done(f runner.Feedback) uint64 {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.feedback = append(p.c.feedback, f)
	switch f.Answer {
	case runner.AnswerDelivered:
		p.c.delivered++
	case runner.AnswerRefused:
		p.c.held = epoch.Add(f.RetryAfter)
	}
	p.c.free <- struct{}{}
	return p.c.delivered
}

type acquired struct {
	permit runner.SendPermit
	err    error
}

func acquireLater(c *Client) <-chan acquired {
	done := make(chan acquired, 1)
	go func() {
		p, err := c.Gate().Acquire(context.Background(), "https://h:443", time.Minute)
		done <- acquired{p, err}
	}()
	return done
}

func acquire(t *testing.T, c *Client) runner.SendPermit {
	t.Helper()
	a := within(t, acquireLater(c), "a slot")
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.permit
}

func sending(t *testing.T, n int) (*Server, *counter) {
	t.Helper()
	gate := newCounter(n)
	s := listen(t, gate)
	s.Serve(theRun, newMemory())
	return s, gate
}

func TestSlot_WhenTwoClientsSend_TheyShareOneBoundAndWhatTheHostTook(t *testing.T) {
	s, gate := sending(t, 2)
	a, b := dial(t, s), dial(t, s)
	first, second := acquire(t, a), acquire(t, b)
	third := acquireLater(b)
	awaitGoroutine(t, "(*counter).Acquire")
	if len(third) > 0 {
		t.Fatal("a third slot of two")
	}
	if n := first.Done(runner.Feedback{Answer: runner.AnswerDelivered, RetryAfter: -1}); n != 1 {
		t.Errorf("%d delivered, want 1", n)
	}
	p := within(t, third, "the slot given back")
	if p.err != nil || p.permit.Delivered() != 1 || second.Delivered() != 0 {
		t.Fatalf("got %+v", p)
	}
	second.Done(runner.Feedback{Answer: runner.AnswerOther, RetryAfter: 0})
	p.permit.Done(runner.Feedback{Answer: runner.AnswerNone, RetryAfter: 1500 * time.Millisecond})
	want := []runner.Feedback{{Answer: runner.AnswerDelivered, RetryAfter: -1}, {Answer: runner.AnswerOther}, {RetryAfter: 1500 * time.Millisecond}}
	if fmt.Sprint(gate.feedback) != fmt.Sprint(want) {
		t.Errorf("the gate was told %v, want %v", gate.feedback, want)
	}
}

func TestSlot_WhenItsHolderDies_IsFreeForOthers(t *testing.T) {
	s, gate := sending(t, 1)
	c := rawDial(t, s)
	body := `{"host":"https://h:443"}`
	fmt.Fprintf(c, "POST /slot HTTP/1.1\r\nHost: oncectl\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != `{"slot":"1","delivered":0}`+"\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	waiting := acquireLater(dial(t, s))
	awaitGoroutine(t, "(*counter).Acquire")
	c.Close()
	if a := within(t, waiting, "the dead holder's slot"); a.err != nil {
		t.Fatal(a.err)
	}
	// It is not known what became of the request: neither delivered nor refused.
	if f := gate.feedback[0]; f.Answer != runner.AnswerNone || f.RetryAfter >= 0 {
		t.Errorf("the gate was told %v", f)
	}
}

func TestSlot_WhenTheHostRefusesOne_AllAreHeld(t *testing.T) {
	s, _ := sending(t, 4)
	acquire(t, dial(t, s)).Done(runner.Feedback{Answer: runner.AnswerRefused, RetryAfter: time.Hour})
	for range 2 {
		a := within(t, acquireLater(dial(t, s)), "the answer")
		var held *runner.HeldError
		if !errors.As(a.err, &held) || held.Host != "https://h:443" || !held.Until.Equal(epoch.Add(time.Hour)) {
			t.Errorf("got %v", a.err)
		}
	}
}

func TestSlot_WhenTheLockIsLostWhileItIsAwaited_IsGivenUnderTheNext(t *testing.T) {
	s, _ := sending(t, 1)
	p := acquire(t, dial(t, s))
	waiting := acquireLater(dial(t, s))
	awaitGoroutine(t, "(*counter).Acquire")
	s.Hold()
	p.Done(runner.Feedback{Answer: runner.AnswerDelivered, RetryAfter: -1})
	awaitGoroutine(t, "(*gate).enter") // and not: the slot is given
	if len(waiting) > 0 {
		t.Fatal("a slot was given while there was no lock")
	}
	s.Serve(theRun, newMemory())
	if a := within(t, waiting, "the slot"); a.err != nil {
		t.Error(a.err)
	}
}

func TestSlot_WhenTheRunHasToEnd_WhoWaitsIsRefusedAndWhoSendsIsNot(t *testing.T) {
	s, gate := sending(t, 1)
	p := acquire(t, dial(t, s))
	waiting := acquireLater(dial(t, s))
	awaitGoroutine(t, "(*counter).Acquire")
	s.Refuse(fmt.Errorf("the job is ended: %w", runner.ErrLockLost))
	if a := within(t, waiting, "the refusal"); !errors.Is(a.err, runner.ErrLockLost) {
		t.Errorf("got %v", a.err)
	}
	if n := p.Done(runner.Feedback{Answer: runner.AnswerDelivered, RetryAfter: -1}); n != 1 {
		t.Errorf("%d delivered, want 1: %v", n, gate.feedback)
	}
}

func TestSlot_WhenTheRunIsGone_DoneReturnsWhatItKnew(t *testing.T) {
	s, _ := sending(t, 1)
	p := acquire(t, dial(t, s))
	s.Close()
	if n := p.Done(runner.Feedback{Answer: runner.AnswerDelivered}); n != 0 {
		t.Errorf("%d delivered", n)
	}
}

func TestSlot_WhenTheServerHasNoGateOrTheRequestIsBad_SaysSo(t *testing.T) {
	s := serving(t, newMemory())
	for body, want := range map[string]string{
		`{"host":"https://h:443"}`: "cannot do that", `{}`: "for a host", `{"host":"a","patience":"-1s"}`: "negative",
		`{"host":"a\n"}`: "control character", `{"host":"a","patience":"soon"}`: "invalid",
	} {
		if _, text := ask(t, s, "POST", "/slot", body); !strings.Contains(text, want) {
			t.Errorf("%s: %s", body, text)
		}
	}
	if status, text := ask(t, s, "POST", "/slot/9/done", `{"answer":"none"}`); status != 404 {
		t.Errorf("%d %s", status, text)
	}
}
