package broker

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/oncectl/oncectl/runner"
)

func TestMain(m *testing.M) {
	// net/http waits half a second behind an answer whose request it did not
	// read to the end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience bounds what should happen at once.
const patience = 30 * time.Second

// memory is a store of claims in memory, which keeps what it was asked.
type memory struct {
	mu     sync.Mutex
	claims map[runner.EventID]runner.Claim
	asked  []any
	// before is asked first: its error is the answer.
	before func(ctx context.Context) error
}

func newMemory() *memory { return &memory{claims: map[runner.EventID]runner.Claim{}} }

var epoch = time.Date(2026, 3, 29, 1, 30, 0, 123456000, time.UTC)

// begin notes a request. The caller holds mu if it returns nil.
func (m *memory) begin(ctx context.Context, req any) error {
	m.mu.Lock()
	m.asked = append(m.asked, req)
	before := m.before
	m.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	return nil
}

func (m *memory) requests() []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]any{}, m.asked...)
}

func (m *memory) Claim(ctx context.Context, req runner.ClaimRequest) ([]bool, error) {
	if err := m.begin(ctx, req); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	won := make([]bool, len(req.IDs))
	for i, id := range req.IDs {
		if _, ok := m.claims[id]; ok {
			continue
		}
		won[i] = true
		c := runner.Claim{ID: id, ClaimedAt: epoch, Token: req.Token, RunID: req.Run.ID, Owner: req.Owner}
		if req.Expires > 0 {
			c.ExpiresAt = epoch.Add(req.Expires)
		}
		if len(req.PayloadHashes) > 0 {
			c.PayloadHash = req.PayloadHashes[i]
		}
		if len(req.Targets) > 0 {
			c.Target = req.Targets[i]
		}
		m.claims[id] = c
	}
	return won, nil
}

func (m *memory) Settle(ctx context.Context, req runner.SettleRequest) ([]runner.SettleAnswer, error) {
	if err := m.begin(ctx, req); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	answers := make([]runner.SettleAnswer, len(req.Settlements))
	for i, s := range req.Settlements {
		answers[i] = m.own(s.ID, req.Token, s.Outcome)
		if answers[i] == runner.Settled {
			c := m.claims[s.ID]
			c.Outcome, c.FinishedAt = s.Outcome, epoch.Add(time.Minute)
			m.claims[s.ID] = c
		}
	}
	return answers, nil
}

// own answers like a store whether the claim may be changed.
func (m *memory) own(id runner.EventID, token runner.Token, outcome runner.Outcome) runner.SettleAnswer {
	c, ok := m.claims[id]
	switch {
	case !ok:
		return runner.NotClaimed
	case token != "" && token != c.Token:
		return runner.NotOwner
	case c.Outcome == outcome:
		return runner.AlreadySettled
	case c.Outcome != "":
		return runner.NotOwner
	}
	return runner.Settled
}

func (m *memory) GiveBack(ctx context.Context, req runner.GiveBackRequest) ([]runner.SettleAnswer, error) {
	if err := m.begin(ctx, req); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	answers := make([]runner.SettleAnswer, len(req.IDs))
	for i, id := range req.IDs {
		answers[i] = m.own(id, req.Token, runner.Delivered)
		if answers[i] == runner.Settled {
			delete(m.claims, id)
		}
	}
	return answers, nil
}

// whole adds what a runner.Claimer need not have.
type whole struct{ *memory }

type renewRequest struct {
	ids   []runner.EventID
	token runner.Token
	d     time.Duration
}

func (m whole) Renew(ctx context.Context, ids []runner.EventID, token runner.Token, d time.Duration) (n int, err error) {
	if err := m.begin(ctx, renewRequest{ids, token, d}); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	for _, id := range ids {
		if c, ok := m.claims[id]; ok && c.Token == token && c.Outcome == "" {
			c.ExpiresAt = epoch.Add(d)
			m.claims[id] = c
			n++
		}
	}
	return n, nil
}

func (m whole) Lookup(ctx context.Context, ids []runner.EventID) ([]runner.Claim, error) {
	if err := m.begin(ctx, ids); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	claims := []runner.Claim{}
	for _, id := range ids {
		if c, ok := m.claims[id]; ok {
			claims = append(claims, c)
		}
	}
	return claims, nil
}

func (m whole) Turn(ctx context.Context, s runner.SettleRequest, c runner.ClaimRequest) ([]runner.SettleAnswer, []bool, error) {
	answers, err := m.Settle(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	won, err := m.Claim(ctx, c)
	return answers, won, err
}

// theRun is the run whose broker is tested.
var theRun = runner.Run{
	ID: 7, Lock: runner.LockID{Name: "nightly", Key: -42}, Key: "2026-03-29", Token: "11111111-1111-4111-8111-111111111111",
	Host: runner.Host{Name: "here", ID: "boot"}, PID: 4711, ScheduledAt: epoch, StartedAt: epoch.Add(time.Second),
}

// listen opens a broker whose gate is not open yet.
func listen(t *testing.T, gate runner.SendGate) *Server {
	t.Helper()
	s, err := Listen(Options{Folders: []string{t.TempDir()}, SendGate: gate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// serving opens a broker on c.
func serving(t *testing.T, c runner.Claimer) *Server {
	t.Helper()
	s := listen(t, nil)
	s.Serve(theRun, c)
	return s
}

func dial(t *testing.T, s *Server) *Client {
	t.Helper()
	c := Dial(s.Path())
	t.Cleanup(func() { c.Close() })
	return c
}

// plain is an HTTP client that knows nothing but the socket.
func plain(t *testing.T, s *Server) *http.Client {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialAt(ctx, s.Path()) }}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// within waits for what should happen at once.
func within[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not after %v", what, patience)
	}
	return v
}

// awaitGoroutine waits until a goroutine is blocked in the function, which
// nothing else would tell.
func awaitGoroutine(t *testing.T, function string) {
	t.Helper()
	await(t, func() bool { return blocked(function) }, "a goroutine in "+function)
}

// awaitNoGoroutine waits until none is.
func awaitNoGoroutine(t *testing.T, function string) {
	t.Helper()
	await(t, func() bool { return !blocked(function) }, "no goroutine in "+function)
}

func await(t *testing.T, f func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

func blocked(function string) bool {
	buf := make([]byte, 1<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		head, frames, _ := strings.Cut(g, "\n")
		if strings.Contains(frames, function+"(") && !strings.Contains(head, "[runn") {
			return true
		}
	}
	return false
}

// result is how a call ended.
type result struct {
	won []bool
	err error
}

// claimLater claims in a goroutine.
func claimLater(c *Client, ids ...runner.EventID) <-chan result {
	done := make(chan result, 1)
	go func() {
		won, err := c.Claim(context.Background(), runner.ClaimRequest{IDs: ids, Token: aToken})
		done <- result{won, err}
	}()
	return done
}

const (
	aToken  runner.Token = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	another runner.Token = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
)

// deepFolder makes a folder whose path no socket address can hold.
func deepFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ask makes a request as any program would.
func ask(t *testing.T, s *Server, method, path, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://oncectl"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := plain(t, s).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
