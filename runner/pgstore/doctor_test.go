package pgstore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// inspect looks at the store, and wants that all but the findings of these
// checks are fine.
func inspect(t *testing.T, url, schema string, now func() time.Time, but ...string) map[string]runner.Finding {
	t.Helper()
	found, err := open(t, url, schema).Inspect(t.Context(), now)
	if err != nil {
		t.Fatalf("Inspect() = %v", err)
	}
	byCheck := map[string]runner.Finding{}
	for _, f := range found {
		byCheck[f.Check] = f
		// The private servers of these tests have fsync off.
		if f.Severity != runner.Fine && f.Check != "durability" && !slices.Contains(but, f.Check) {
			t.Errorf("Inspect() found %+v", f)
		}
		if f.Severity == runner.Problem && f.Do == "" {
			t.Errorf("nothing is said of what to do about %+v", f)
		}
	}
	return byCheck
}

// wantFinding compares what was found by one check.
func wantFinding(t *testing.T, f runner.Finding, severity runner.Severity, found, do string) {
	t.Helper()
	if f.Severity != severity || !strings.Contains(f.Found, found) || !strings.Contains(f.Do, do) {
		t.Errorf("found %+v, want a %s on %q and %q", f, severity, found, do)
	}
}

func TestInspect_WhenAllIsWell_EverythingIsFine(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	if _, err := open(t, url, schema).ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := inspect(t, url, schema, time.Now)
	for check, word := range map[string]string{"server": "PostgreSQL 1", "primary": "a primary", "clock": "the same time", "rights": "all that oncectl does", "schema": "schema version 1", "pooler": "none"} {
		wantFinding(t, found[check], runner.Fine, word, "")
	}
}

func TestInspect_WhenTheSchemaIsMissing_IsSaidAndNotMade(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	wantFinding(t, inspect(t, url, schema, time.Now, "schema")["schema"], runner.Note, "not there", "schema apply")
	if n := pgtest.Query(t, url, "select count(*)::text from pg_namespace where nspname = "+quote(schema))[0]; n != "0" {
		t.Error("looking made the schema")
	}
	pgtest.Exec(t, url, "create schema "+schema)
	wantFinding(t, inspect(t, url, schema, time.Now, "schema")["schema"], runner.Note, "no tables", "schema apply")
}

func TestInspect_WhenTheRoleLacksRights_TheyAreNamed(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	roleWith(t, url, schema)
	via := as(t, url, schema, "")
	wantFinding(t, inspect(t, via, schema, time.Now, "schema")["schema"], runner.Problem, "may not make them", "oncectl schema print")
	if _, err := open(t, url, schema).ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, inspect(t, via, schema, time.Now, "rights")["rights"], runner.Problem, "may not use schema", "grant this role")
	pgtest.Exec(t, url, "grant usage on schema "+schema+" to "+schema, "grant select on all tables in schema "+schema+" to "+schema)
	f := inspect(t, via, schema, time.Now, "rights")["rights"]
	wantFinding(t, f, runner.Problem, "fences (insert, update)", "grant this role")
	wantFinding(t, f, runner.Problem, "runs_id_seq (usage)", "")
	pgtest.Exec(t, url, "grant insert, update, delete on all tables in schema "+schema+" to "+schema, "grant usage on all sequences in schema "+schema+" to "+schema)
	inspect(t, via, schema, time.Now)
}

func TestInspect_WhenTheSchemaIsNewer_IsAProblem(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	if _, err := open(t, url, schema).ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, "update "+schema+".schema_info set version = 8")
	wantFinding(t, inspect(t, url, schema, time.Now, "schema")["schema"], runner.Note, "newer", "")
	pgtest.Exec(t, url, "update "+schema+".schema_info set oldest_binary = 7")
	wantFinding(t, inspect(t, url, schema, time.Now, "schema")["schema"], runner.Problem, "version 7 or later", "newer oncectl")
}

func TestInspect_WhenTheClockIsOff_IsAProblem(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	off := func(d time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(d) } }
	wantFinding(t, inspect(t, url, schema, off(3*time.Minute), "clock", "schema")["clock"], runner.Problem, "ahead of the server's", "NTP")
	wantFinding(t, inspect(t, url, schema, off(-3*time.Minute), "clock", "schema")["clock"], runner.Problem, "3m0", "NTP")
	wantFinding(t, inspect(t, url, schema, off(2*time.Second), "clock", "schema")["clock"], runner.Fine, "the same time", "")
}

// A slow answer says nothing of the clocks.
func TestInspect_WhenTheAnswerIsSlow_TheClockIsFine(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if f := findSkew(start.Add(19*time.Second), start, start.Add(20*time.Second)); f.Severity != runner.Fine {
		t.Errorf("found %+v", f)
	}
	if f := findSkew(start.Add(26*time.Second), start, start.Add(20*time.Second)); f.Severity != runner.Problem {
		t.Errorf("found %+v", f)
	}
}

func TestInspect_WhenThereIsAPooler_IsNamed(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]runner.Severity{"transaction": runner.Note, "session": runner.Note, "statement": runner.Problem} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url, schema := pgtest.Schema(t)
			via := pgtest.Bouncer(t, url, mode)
			wantFinding(t, inspect(t, via, schema, time.Now, "pooler", "schema")["pooler"], want, "pooler", "pool")
		})
	}
}

func TestInspect_WhenTheServerIsAStandby_IsAProblem(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	if _, err := open(t, primary.URL(), "o").ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby := primary.Standby(t)
	for name, url := range map[string]string{"direct": standby.URL(), "pooled": pgtest.Bouncer(t, standby.URL(), "transaction")} {
		found := inspect(t, url, "o", time.Now, "primary", "pooler", "schema")
		wantFinding(t, found["primary"], runner.Problem, "hot standby", "the primary")
		wantFinding(t, found["server"], runner.Fine, "PostgreSQL", "")
		if found["schema"].Severity != runner.Fine {
			t.Errorf("%s: the standby's schema is %+v", name, found["schema"])
		}
	}
}

func TestInspect_WhenTheServerIsTooOld_IsAProblem(t *testing.T) {
	row := make(row, factMayMakeTables+1)
	row[factVersion] = []byte("PostgreSQL 13.22 on x86_64-pc-linux-gnu, compiled by gcc")
	s := openWith(t, Config{ConnString: "postgres://x@127.0.0.1:1/x"})
	wantFinding(t, s.findServer(row), runner.Problem, "13.22", "PostgreSQL 14 or later")
}
