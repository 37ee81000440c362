package pgstore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// TestMain lets many parallel tests wait at once: they wait for leases to end,
// and do next to nothing meanwhile. To fuzzing it is the number of processes.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.VisitAll(func(f *flag.Flag) {
		if f.Name == "test.parallel" && flag.Lookup("test.fuzz").Value.String() == "" {
			_ = f.Value.Set("32") // a number is always valid
		}
	})
	os.Exit(m.Run())
}

// soon bounds what should take milliseconds, on a busy machine.
const soon = 15 * time.Second

// open opens a store as a process of its own would.
func open(t *testing.T, url, schema string) *Store {
	t.Helper()
	return openWith(t, Config{ConnString: url, Schema: schema, StoreWait: 10 * time.Second, AppName: schema})
}

func openWith(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// nightly is the lock that tests take.
func nightly(schema string) runner.LockID {
	return runner.LockID{Name: "nightly", Key: runner.LockKey(schema, "nightly")}
}

// take takes the schema's lock, which must be free.
func take(t *testing.T, s *Store) *held {
	t.Helper()
	h, err := s.TryLock(t.Context(), nightly(s.config.Schema))
	if err != nil {
		t.Fatalf("TryLock() = %v, want the lock", err)
	}
	t.Cleanup(func() { _ = h.Release(context.Background()) })
	return h.(*held)
}

// takeOnceFree polls, as runner does, until the lock is had.
func takeOnceFree(t *testing.T, s *Store, within time.Duration) *held {
	t.Helper()
	var got *held
	until(t, "the lock is free", within, func() bool {
		h, err := s.TryLock(t.Context(), nightly(s.config.Schema))
		if err != nil && !errors.Is(err, runner.ErrBusy) {
			t.Fatalf("TryLock() = %v, want the lock or ErrBusy", err)
		}
		if err == nil {
			got = h.(*held)
		}
		return err == nil
	})
	t.Cleanup(func() { _ = got.Release(context.Background()) })
	return got
}

// beginRunOf records a run under h.
func beginRunOf(t *testing.T, h *held) runner.Run {
	t.Helper()
	b, err := h.Begin(t.Context(), beginRequest())
	if err != nil {
		t.Fatalf("Begin() = %v", err)
	}
	return b.Run
}

func beginRequest() runner.BeginRequest {
	return runner.BeginRequest{Token: runner.NewToken(), Host: runner.Host{Name: "host-a", ID: "boot-1"}, PID: 4711}
}

// claimOf is a bare claim; run may be nil.
func claimOf(run *runner.Run, ids ...string) runner.ClaimRequest {
	req := runner.ClaimRequest{Token: runner.NewToken(), Owner: "host-a/1", Run: run}
	for _, id := range ids {
		req.IDs = append(req.IDs, runner.EventID(id))
	}
	return req
}

// wantWon claims one id, and wants it won or not.
func wantWon(t *testing.T, c runner.Claimer, req runner.ClaimRequest, want bool) {
	t.Helper()
	won, err := c.Claim(t.Context(), req)
	if err != nil {
		t.Fatalf("Claim(%q) = %v", req.IDs, err)
	}
	if won[0] != want {
		t.Fatalf("Claim(%q) = %v, want %v", req.IDs, won[0], want)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v, want the error %q", what, err, want)
	}
}

// holders lists the server processes that have the schema's lock.
func holders(t *testing.T, url, schema string) []string {
	t.Helper()
	key := uint64(nightly(schema).Key)
	return pgtest.Query(t, url, fmt.Sprintf(`select pid::text from pg_locks
		where locktype = 'advisory' and granted and classid = %d and objid = %d`, key>>32, key&0xffffffff))
}

// transactions lists the open transactions of the stores of a schema, which
// open gave its name.
func transactions(t *testing.T, url, schema string) []string {
	t.Helper()
	return pgtest.Query(t, url, fmt.Sprintf(`select pid || ' ' || state || ': ' || query from pg_stat_activity
		where application_name = 'oncectl %s' and xact_start is not null`, schema))
}

// terminate ends the server process that has the schema's lock.
func terminate(t *testing.T, url, schema string) {
	t.Helper()
	all := holders(t, url, schema)
	if len(all) != 1 {
		t.Fatalf("%d processes hold the lock, want 1", len(all))
	}
	pgtest.Query(t, url, "select pg_terminate_backend("+all[0]+")::text")
}

// until polls what the server shows, which has no event to wait for.
func until(t *testing.T, what string, within time.Duration, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func wantLost(t *testing.T, h *held, within time.Duration) {
	t.Helper()
	select {
	case <-h.Lost():
	case <-time.After(within):
		t.Fatalf("the loss of the lock was not noticed within %v", within)
	}
}

func wantHeld(t *testing.T, h *held) {
	t.Helper()
	select {
	case <-h.Lost():
		t.Fatal("the lock counts as lost")
	default:
	}
	if err := h.Check(t.Context()); err != nil {
		t.Fatalf("Check() = %v, want the lock held", err)
	}
}

// ways runs a test on a direct connection and through PgBouncer; via is the URL
// that the store is given, direct is the server's own.
func ways(t *testing.T, settings []string, test func(t *testing.T, via, direct, schema string)) {
	for _, mode := range []string{"direct", "transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct, schema := pgtest.Schema(t)
			via := direct
			if mode != "direct" {
				via = pgtest.Bouncer(t, direct, mode, settings...)
			}
			test(t, via, direct, schema)
		})
	}
}

// as is a URL for another role, with a password if that is not empty.
func as(t *testing.T, serverURL, role, password string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	if password != "" {
		u.User = url.UserPassword(role, password)
	}
	return u.String()
}

// quote makes an SQL string literal.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
