package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// refusedFor wants a store to be refused in words that say what to do.
func refusedFor(t *testing.T, via, schema, what string) {
	t.Helper()
	s := openWith(t, Config{ConnString: via, Schema: schema, StoreWait: time.Second})
	_, err := s.Claim(t.Context(), claimOf(nil, "a"))
	h, locked := s.TryLock(t.Context(), nightly(schema))
	if locked == nil {
		// The lock alone needs no tables; a run does.
		_, locked = h.Begin(t.Context(), beginRequest())
		_ = h.Release(t.Context())
	}
	for _, err := range []error{err, locked} {
		wantErr(t, what, err, runner.ErrRefused)
		for _, word := range []string{"oncectl schema apply", "oncectl schema print", schema} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want a word on %q", what, err, word)
			}
		}
	}
}

// A role that may use the tables needs no right to make them; each right that
// it lacks leads to the same advice.
func TestRights_WhenTheRoleMayNotMakeTables_TheErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"direct", "transaction"} {
		t.Run(mode, func(t *testing.T) { t.Parallel(); testRights(t, mode) })
	}
}

func testRights(t *testing.T, mode string) {
	direct, schema := pgtest.Schema(t)
	roleWith(t, direct, schema)
	via := as(t, direct, schema, "")
	if mode != "direct" {
		via = pgtest.Bouncer(t, via, mode)
	}
	refusedFor(t, via, schema, "no right on the database")
	pgtest.Exec(t, direct, "create schema "+schema)
	refusedFor(t, via, schema, "no right on the schema")
	pgtest.Exec(t, direct, "grant usage on schema "+schema+" to "+schema)
	refusedFor(t, via, schema, "no right to create in the schema")

	// The owner does as the error says.
	owner := open(t, direct, schema)
	if _, err := owner.ApplySchema(t.Context()); err != nil {
		t.Fatalf("ApplySchema() = %v", err)
	}
	refusedFor(t, via, schema, "no right on the tables")
	pgtest.Exec(t, direct, "grant select, insert, update, delete on all tables in schema "+schema+" to "+schema,
		"grant usage on all sequences in schema "+schema+" to "+schema)
	h := take(t, open(t, via, schema))
	run := beginRunOf(t, h)
	wantWon(t, h, claimOf(&run, "a"), true)
	end := runner.RunEnd{Outcome: runner.RunFailed, ExitCode: 1, DeadLetter: &runner.DeadLetter{
		Kind: runner.KindRun, Name: "nightly", LastError: "it failed", Attempts: 1, Certainty: runner.Failed,
	}}
	if err := h.Finish(t.Context(), run, end); err != nil {
		t.Errorf("Finish() = %v", err)
	}
}
