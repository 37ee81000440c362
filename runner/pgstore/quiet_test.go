package pgstore

import (
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// Losing is the usual case. It must not fill the server's log.
func TestServerLog_WhenLocksTicksAndClaimsAreLost_SaysNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "log_min_messages = notice", "log_lock_waits = on")
	for _, mode := range []string{"direct", "transaction", "session"} {
		via := server.URL()
		if mode != "direct" {
			via = pgtest.Bouncer(t, server.URL(), mode)
		}
		schema := "quiet_" + mode
		s := open(t, via, schema)
		if _, err := s.ApplySchema(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := len(server.Log(t))
		loseEverything(t, via, schema)
		if said := server.Log(t)[before:]; strings.TrimSpace(said) != "" {
			t.Errorf("%s: the server's log says\n%s", mode, said)
		}
	}
}

// loseEverything wins once and loses in all ways, and closes all connections.
func loseEverything(t *testing.T, via, schema string) {
	t.Helper()
	winner, loser := open(t, via, schema), open(t, via, schema)
	h := take(t, winner)
	tick := beginRequest()
	tick.Key = "2026-01-02T03:00:00Z"
	b, err := h.Begin(t.Context(), tick)
	if err != nil {
		t.Fatal(err)
	}
	wantWon(t, h, claimOf(&b.Run, "a"), true)
	wantWon(t, loser, claimOf(nil, "a"), false)
	for range 3 {
		_, err = loser.TryLock(t.Context(), nightly(schema))
		wantErr(t, "TryLock of a held lock", err, runner.ErrBusy)
	}
	if err := h.Finish(t.Context(), b.Run, runner.RunEnd{Outcome: runner.RunSucceeded}); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := take(t, loser)
	again := beginRequest()
	again.Key = tick.Key
	_, err = late.Begin(t.Context(), again)
	wantErr(t, "Begin of a tick that is done", err, runner.ErrDone)
	old := b.Run
	old.Token = runner.NewToken()
	_, err = late.Claim(t.Context(), claimOf(&old, "b"))
	wantErr(t, "Claim of a run that is over", err, runner.ErrFenced)
	if err := late.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{winner, loser} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
