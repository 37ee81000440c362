package storetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// longExpiry does not pass within a test.
const longExpiry = time.Hour

// here is the host that the suite's runs are on.
var here = runner.Host{Name: "host-a", ID: "boot-1:pidns-1"}

// salt keeps the locks of several test processes on one server apart.
var salt = rand.Text()

// lockID names a lock as the command line would. Its key is that of this suite:
// several may run on one server at once.
func lockID(t testing.TB, name string) runner.LockID {
	suite, _, _ := strings.Cut(t.Name(), "/")
	return runner.LockID{Name: name, Key: runner.LockKey(salt+suite, name)}
}

// fresh opens one handle on an empty store.
func fresh(t *testing.T, h Harness) (Place, Store) {
	t.Helper()
	p := h.Fresh(t)
	return p, p.Open(t)
}

// mustLock takes a free lock and releases it when t ends.
func mustLock(t *testing.T, s runner.Locker, name string) runner.HeldLock {
	t.Helper()
	held, err := s.TryLock(t.Context(), lockID(t, name))
	if err != nil {
		t.Fatalf("TryLock(%q) = %v, want the lock", name, err)
	}
	t.Cleanup(func() { _ = held.Release(context.Background()) })
	return held
}

func mustRelease(t *testing.T, held runner.HeldLock) {
	t.Helper()
	if err := held.Release(t.Context()); err != nil {
		t.Fatalf("Release() = %v", err)
	}
}

// mustBegin records a run under held.
func mustBegin(t *testing.T, held runner.HeldLock, key string) runner.Begun {
	t.Helper()
	b, err := held.Begin(t.Context(), beginRequest(key))
	if err != nil {
		t.Fatalf("Begin(key %q) = %v", key, err)
	}
	return b
}

func beginRequest(key string) runner.BeginRequest {
	return runner.BeginRequest{Token: runner.NewToken(), Key: key, Host: here, PID: 4711}
}

func mustFinish(t *testing.T, held runner.HeldLock, run runner.Run, outcome runner.RunOutcome) {
	t.Helper()
	end := runner.RunEnd{Outcome: outcome}
	if outcome != runner.RunSucceeded {
		end.ExitCode = 1
	}
	if err := held.Finish(t.Context(), run, end); err != nil {
		t.Fatalf("Finish(run %d, %s) = %v", run.ID, outcome, err)
	}
}

// oneRun takes the lock, runs and releases it; an empty outcome leaves the run
// unfinished, as a crash would.
func oneRun(t *testing.T, s Store, lock, key string, outcome runner.RunOutcome) runner.Run {
	t.Helper()
	held := mustLock(t, s, lock)
	run := mustBegin(t, held, key).Run
	if outcome != "" {
		mustFinish(t, held, run, outcome)
	}
	mustRelease(t, held)
	return run
}

// ids makes event ids of strings.
func ids(names ...string) []runner.EventID {
	out := make([]runner.EventID, len(names))
	for i, n := range names {
		out[i] = runner.EventID(n)
	}
	return out
}

// bare is a bare claim by a new claimer.
func bare(names ...string) runner.ClaimRequest {
	return runner.ClaimRequest{IDs: ids(names...), Token: runner.NewToken(), Owner: "host-a/1"}
}

// unfinished is a claim that waits for its outcome.
func unfinished(names ...string) runner.ClaimRequest {
	req := bare(names...)
	req.Expires = longExpiry
	return req
}

// wantClaim claims and compares the answers.
func wantClaim(t *testing.T, c runner.Claimer, req runner.ClaimRequest, want ...bool) {
	t.Helper()
	won, err := c.Claim(t.Context(), req)
	if err != nil {
		t.Fatalf("Claim(%q) = %v", req.IDs, err)
	}
	if fmt.Sprint(won) != fmt.Sprint(want) {
		t.Fatalf("Claim(%q) = %v, want %v", req.IDs, won, want)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v, want the error %q", what, err, want)
	}
}

// settleAll gives the same outcome to all ids, without dead letters.
func settleAll(outcome runner.Outcome, names ...string) []runner.Settlement {
	out := make([]runner.Settlement, len(names))
	for i, n := range names {
		out[i] = runner.Settlement{ID: runner.EventID(n), Outcome: outcome}
	}
	return out
}

func wantSettle(t *testing.T, c runner.Claimer, req runner.SettleRequest, want ...runner.SettleAnswer) {
	t.Helper()
	got, err := c.Settle(t.Context(), req)
	if err != nil {
		t.Fatalf("Settle(%v) = %v", req.Settlements, err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("Settle(%v) = %v, want %v", req.Settlements, got, want)
	}
}

// wantLookup returns the one claim that exists of id.
func wantLookup(t *testing.T, s runner.ClaimReader, id string) runner.Claim {
	t.Helper()
	got, err := s.Lookup(t.Context(), ids(id))
	if err != nil {
		t.Fatalf("Lookup(%q) = %v", id, err)
	}
	if len(got) != 1 {
		t.Fatalf("Lookup(%q) found %d claims, want 1", id, len(got))
	}
	return got[0]
}

func wantNoClaim(t *testing.T, s runner.ClaimReader, names ...string) {
	t.Helper()
	got, err := s.Lookup(t.Context(), ids(names...))
	if err != nil {
		t.Fatalf("Lookup(%q) = %v", names, err)
	}
	if len(got) != 0 {
		t.Fatalf("Lookup(%q) = %+v, want none", names, got)
	}
}

func wantState(t *testing.T, s runner.ClaimReader, id, want string) {
	t.Helper()
	if got := wantLookup(t, s, id).State(); got != want {
		t.Fatalf("the claim of %q is %s, want %s", id, got, want)
	}
}

// exec runs another program's statement.
func exec(t *testing.T, p Place, stmt string) {
	t.Helper()
	if _, err := p.DB(t).ExecContext(t.Context(), stmt); err != nil {
		t.Fatalf("%s: %v", stmt, err)
	}
}

// rows returns the rows of a query, their columns joined by "|"; null is "-".
func rows(t *testing.T, p Place, query string) []string {
	t.Helper()
	r, err := p.DB(t).QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer r.Close()
	cols, err := r.Columns()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for r.Next() {
		vals, dest := make([]sql.NullString, len(cols)), make([]any, len(cols))
		for i := range vals {
			dest[i] = &vals[i]
		}
		if err := r.Scan(dest...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		out = append(out, joinRow(vals))
	}
	if err := r.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

func joinRow(vals []sql.NullString) string {
	parts := make([]string, len(vals))
	for i, v := range vals {
		parts[i] = "-"
		if v.Valid {
			parts[i] = v.String
		}
	}
	return strings.Join(parts, "|")
}

func wantRows(t *testing.T, p Place, query string, want ...string) {
	t.Helper()
	got := rows(t, p, query)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%s\n gave %q\n want %q", query, got, want)
	}
}

// quote makes an SQL string literal, as both dialects read it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// expire makes the unfinished claims of the names look as if their time had
// passed long ago.
func expire(t *testing.T, p Place, names ...string) {
	t.Helper()
	for _, n := range names {
		exec(t, p, "update processed_events set expires_at = '2001-01-01T00:00:00.000Z' where event_id = "+quote(n))
	}
}
