package pgstore

import (
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// A claim must survive a crash of the server before its side effect begins. A
// trigger tells how each of our writes will be committed.
func TestCommit_WhenItWouldBeAsynchronous_IsNot(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{"off": "on", "on": "on", "local": "local", "remote_write": "remote_write", "remote_apply": "remote_apply"} {
		for _, mode := range []string{"direct", "transaction"} {
			t.Run(mode+"/"+set, func(t *testing.T) {
				t.Parallel()
				server, name := pgtest.Schema(t)
				url := databaseWith(t, server, name, "", "synchronous_commit = "+set)
				via := url
				if mode != "direct" {
					via = pgtest.Bouncer(t, url, mode)
				}
				s := open(t, via, name)
				if _, err := s.ApplySchema(t.Context()); err != nil {
					t.Fatal(err)
				}
				watchCommits(t, url, name, "processed_events", "runs", "failed_jobs")
				writeEverywhere(t, s)
				got := pgtest.Query(t, url, "select distinct setting || ' for ' || what from commits order by 1")
				if len(got) != 3 {
					t.Errorf("not all tables were written to: %q", got)
				}
				for _, g := range got {
					if !strings.HasPrefix(g, want+" for ") {
						t.Errorf("synchronous_commit is %s, want %s", g, want)
					}
				}
			})
		}
	}
}

// watchCommits records what synchronous_commit is at each write to the tables.
func watchCommits(t *testing.T, url, schema string, tables ...string) {
	t.Helper()
	pgtest.Exec(t, url, "create table commits (what text, setting text)",
		`create function watch() returns trigger language plpgsql as $$ begin
			insert into commits values (tg_table_name, current_setting('synchronous_commit')); return null; end $$`)
	for _, table := range tables {
		pgtest.Exec(t, url, "create trigger watch after insert or update or delete on "+schema+"."+table+" for each row execute function watch()")
	}
}

// writeEverywhere does all that oncectl writes for, in a run and alone.
func writeEverywhere(t *testing.T, s *Store) {
	t.Helper()
	h := take(t, s)
	run := beginRunOf(t, h)
	letter := &runner.DeadLetter{Kind: runner.KindRun, Name: "nightly", LastError: "it failed", Attempts: 1, Certainty: runner.Failed}
	for id, c := range map[string]struct {
		runner.Claimer
		run *runner.Run
	}{"by the lock": {h, &run}, "by the store": {s, nil}} {
		wantWon(t, c, claimOf(c.run, id), true)
		settle := runner.SettleRequest{Run: c.run, Settlements: []runner.Settlement{{ID: runner.EventID(id), Outcome: runner.Failed, DeadLetter: letter}}}
		if got, err := c.Settle(t.Context(), settle); err != nil || got[0] != runner.Settled {
			t.Fatalf("Settle() = %v, %v", got, err)
		}
		back := runner.GiveBackRequest{Run: c.run, IDs: []runner.EventID{runner.EventID(id)}}
		if got, err := c.GiveBack(t.Context(), back); err != nil || got[0] != runner.Settled {
			t.Fatalf("GiveBack() = %v, %v", got, err)
		}
	}
	if err := h.Finish(t.Context(), run, runner.RunEnd{Outcome: runner.RunFailed, ExitCode: 1, DeadLetter: letter}); err != nil {
		t.Fatalf("Finish() = %v", err)
	}
}
