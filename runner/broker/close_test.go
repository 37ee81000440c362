package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func rawDial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := dialAt(context.Background(), s.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func closeLater(s *Server) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	return done
}

// The lock is held until the broker is closed: nobody may hold that up.
func TestServer_WhenClosedWhileARequestIsHalfSent_DoesNotWaitForTheRest(t *testing.T) {
	s := serving(t, newMemory())
	s.grace = time.Hour
	c := rawDial(t, s)
	fmt.Fprint(c, "POST /claim HTTP/1.1\r\nHost: oncectl\r\nContent-Length: 100\r\n\r\n{")
	awaitGoroutine(t, "readBody")
	if err := within(t, closeLater(s), "closing"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the caller was answered %s", resp.Status)
	}
}

func TestServer_WhenClosedWhileAnAnswerIsNotRead_GivesUpAfterItsGrace(t *testing.T) {
	m := newMemory()
	s := serving(t, whole{m})
	s.grace = 10 * time.Millisecond
	for i := range 2_000 {
		id := runner.EventID(fmt.Sprint(i, strings.Repeat("x", 900)))
		m.claims[id] = runner.Claim{ID: id}
	}
	c := rawDial(t, s)
	body, err := encode(idsBody{IDs: keys(m.claims)})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /lookup HTTP/1.1\r\nHost: oncectl\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	awaitGoroutine(t, "broker.write")
	within(t, closeLater(s), "closing")
}

func keys(m map[runner.EventID]runner.Claim) (ids []runner.EventID) {
	for id := range m {
		ids = append(ids, id)
	}
	return ids
}

// What is being claimed gets its answer: a caller who does not know whether it
// won is worse off than one who waits.
func TestServer_WhenClosedWhileAClaimIsAtWork_TheClaimIsAnsweredFirst(t *testing.T) {
	m, asked, goOn := newMemory(), make(chan bool), make(chan bool)
	m.before = func(context.Context) error { asked <- true; <-goOn; return nil }
	s := serving(t, m)
	s.grace = time.Hour
	claims := claimLater(dial(t, s), "a")
	within(t, asked, "the claim")
	closed := closeLater(s)
	<-s.closing.Done()
	close(goOn)
	if r := within(t, claims, "the answer"); r.err != nil || !r.won[0] {
		t.Errorf("won %v, error %v", r.won, r.err)
	}
	if err := within(t, closed, "closing"); err != nil {
		t.Error(err)
	}
}

func TestServer_WhenAClaimAtWorkDoesNotEnd_ClosingEndsIt(t *testing.T) {
	m := newMemory()
	m.before = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	s := serving(t, m)
	s.grace = 10 * time.Millisecond
	claims := claimLater(dial(t, s), "a")
	awaitGoroutine(t, "(*memory).Claim")
	within(t, closeLater(s), "closing")
	if r := within(t, claims, "the answer"); !errors.Is(r.err, runner.ErrUnavailable) {
		t.Errorf("won %v, error %v", r.won, r.err)
	}
}

// A claim is not cut off by its caller's death: a query that is cancelled closes
// its connection, and with it goes the lock.
func TestServer_WhenTheCallerDiesInAClaim_TheClaimGoesOn(t *testing.T) {
	m, asked, ended := newMemory(), make(chan bool), make(chan error, 1)
	goOn := make(chan bool)
	m.before = func(ctx context.Context) error { asked <- true; <-goOn; ended <- ctx.Err(); return nil }
	s := serving(t, m)
	c := rawDial(t, s)
	fmt.Fprint(c, "POST /claim/a HTTP/1.1\r\nHost: oncectl\r\n\r\n")
	within(t, asked, "the claim")
	c.Close()
	awaitNoGoroutine(t, "(*connReader).backgroundRead") // the server knows
	close(goOn)
	if err := within(t, ended, "the claim's end"); err != nil {
		t.Errorf("it was ended: %v", err)
	}
}

// One who goes while it waits takes its request with it.
func TestServer_WhenTheCallerDiesWhileItsLockIsAwaited_NothingIsClaimed(t *testing.T) {
	m := newMemory()
	s := listen(t, nil)
	c := rawDial(t, s)
	fmt.Fprint(c, "POST /claim HTTP/1.1\r\nHost: oncectl\r\nContent-Length: 13\r\n\r\n{\"ids\":[\"a\"]}")
	awaitGoroutine(t, "(*gate).enter")
	c.Close()
	awaitNoGoroutine(t, "(*gate).enter")
	s.Serve(theRun, m)
	if got := m.requests(); len(got) > 0 {
		t.Errorf("claimed %v", got)
	}
}

func TestClient_WhenItsContextEnds_ACallThatWaitsEndsWithItsCause(t *testing.T) {
	c := dial(t, listen(t, nil))
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := c.Claim(ctx, runner.ClaimRequest{IDs: []runner.EventID{"a"}})
		done <- err
	}()
	awaitGoroutine(t, "(*gate).enter")
	cause := errors.New("the job was told to end")
	cancel(cause)
	if err := within(t, done, "the call's end"); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
