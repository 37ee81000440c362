package broker

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// sentinels are those of runner/errors.go, by name.
func sentinels() map[string]error {
	return map[string]error{
		"ErrBusy": runner.ErrBusy, "ErrDone": runner.ErrDone, "ErrUnavailable": runner.ErrUnavailable, "ErrRefused": runner.ErrRefused,
		"ErrUndecided": runner.ErrUndecided, "ErrFenced": runner.ErrFenced, "ErrLockLost": runner.ErrLockLost, "ErrInvalid": runner.ErrInvalid,
		"ErrOtherPayload": runner.ErrOtherPayload, "ErrNoDeadLetter": runner.ErrNoDeadLetter,
		"ErrNotExecutable": runner.ErrNotExecutable, "ErrNotFound": runner.ErrNotFound,
	}
}

func TestErrors_WhenASentinelIsAdded_TheTableBelowHasIt(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, name := range spec.Names {
			n++
			if sentinels()[name.Name] == nil {
				t.Errorf("runner.%s is not tested over the wire", name.Name)
			}
		}
		return true
	})
	if n != len(sentinels()) {
		t.Errorf("%d sentinels in runner/errors.go, %d tested", n, len(sentinels()))
	}
}

// calls are all that a client can ask of the store, by name.
func calls() map[string]func(*Client) error {
	ctx, ids := context.Background(), []runner.EventID{"a"}
	return map[string]func(*Client) error{
		"Claim": func(c *Client) error { _, err := c.Claim(ctx, runner.ClaimRequest{IDs: ids}); return err },
		"Settle": func(c *Client) error {
			_, err := c.Settle(ctx, runner.SettleRequest{Settlements: []runner.Settlement{{ID: "a", Outcome: runner.Failed}}})
			return err
		},
		"GiveBack": func(c *Client) error { _, err := c.GiveBack(ctx, runner.GiveBackRequest{IDs: ids}); return err },
		"Renew":    func(c *Client) error { _, err := c.Renew(ctx, ids, aToken, time.Second); return err },
		"Lookup":   func(c *Client) error { _, err := c.Lookup(ctx, ids); return err },
		"Turn": func(c *Client) error {
			_, _, err := c.Turn(ctx, runner.SettleRequest{}, runner.ClaimRequest{IDs: ids})
			return err
		},
	}
}

func TestClient_WhenTheClaimerFails_ItFailsWithTheSameSentinel(t *testing.T) {
	for name, sentinel := range sentinels() {
		for method, call := range calls() {
			t.Run(name+"/"+method, func(t *testing.T) {
				cause := fmt.Errorf("claiming <%q>: %w", "a", sentinel)
				m, s := newMemory(), listen(t, nil)
				m.before = func(context.Context) error {
					if errors.Is(sentinel, runner.ErrLockLost) {
						s.Refuse(cause) // else it is waited for the next lock
					}
					return cause
				}
				s.Serve(theRun, whole{m})
				err := call(dial(t, s))
				if err == nil || err.Error() != cause.Error() {
					t.Errorf("got %v, want the words %q", err, cause)
				}
				for other, s := range sentinels() {
					if errors.Is(err, s) != (other == name) {
						t.Errorf("%v is %s: %v", err, other, errors.Is(err, s))
					}
				}
			})
		}
	}
}

// An error that nobody knows is none of the sentinels: least of all the answer
// "already claimed", which only the status 409 is.
func TestClient_WhenTheErrorIsUnknown_ItIsNoneOfTheSentinels(t *testing.T) {
	m := newMemory()
	m.before = func(context.Context) error { return errors.New("the disk is on fire") }
	_, err := dial(t, serving(t, m)).Claim(context.Background(), runner.ClaimRequest{IDs: []runner.EventID{"a"}})
	if err == nil || err.Error() != "the disk is on fire" {
		t.Errorf("got %v", err)
	}
	for name, s := range sentinels() {
		if errors.Is(err, s) {
			t.Errorf("%v is %s", err, name)
		}
	}
	if status, body := encodeError(err); status != 500 || body.Code != codeInternal {
		t.Errorf("status %d, code %s", status, body.Code)
	}
}

func TestErrors_WhenAnyIsEncoded_ItsStatusIsNotTheAnswerNo(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range kinds() {
		match := k.match
		if match == nil {
			match = k.sentinel
		}
		status, body := encodeError(fmt.Errorf("doing it: %w", match))
		if status == 409 || status < 400 || body.Code != k.code || seen[k.code] {
			t.Errorf("%s: status %d, code %s, seen before: %v", k.code, status, body.Code, seen[k.code])
		}
		seen[k.code] = true
		if !errors.Is(decodeError(body), k.sentinel) || !strings.HasPrefix(decodeError(body).Error(), "doing it: ") {
			t.Errorf("%s comes back as %v", k.code, decodeError(body))
		}
	}
}
