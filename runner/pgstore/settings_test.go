package pgstore

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// hostile are settings that administrators make for other programs, each of
// which would take away a lock that is held for ten seconds, cut a wait short
// or make a statement fail.
var hostile = []string{
	"idle_in_transaction_session_timeout = '2s'",
	"idle_session_timeout = '2s'",
	"statement_timeout = '2s'",
	"lock_timeout = '2s'",
	"transaction_timeout = '2s'",
	"default_transaction_read_only = on",
	"default_transaction_isolation = serializable",
}

func TestSettings_WhenTheRoleHasThem_TheLockIsKept(t *testing.T) {
	t.Parallel()
	for _, setting := range hostile {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			url, schema := pgtest.Schema(t)
			needsSetting(t, url, setting)
			roleWith(t, url, schema, setting)
			pgtest.Exec(t, url, fmt.Sprintf("create schema %s authorization %s", schema, schema))
			keepsItsLock(t, as(t, url, schema, ""), url, schema)
		})
	}
}

func TestSettings_WhenTheDatabaseHasThem_TheLockIsKept(t *testing.T) {
	t.Parallel()
	for _, setting := range hostile {
		for _, mode := range []string{"direct", "transaction", "session"} {
			t.Run(mode+"/"+setting, func(t *testing.T) {
				t.Parallel()
				url, schema := pgtest.Schema(t)
				needsSetting(t, url, setting)
				via := databaseWith(t, url, schema, "", setting)
				direct := via
				if mode != "direct" {
					via = pgtest.Bouncer(t, via, mode)
				}
				keepsItsLock(t, via, direct, schema)
			})
		}
	}
}

// keepsItsLock holds a lock for ten seconds and uses all connections before
// and after that, and meanwhile has a claim wait for an application.
func keepsItsLock(t *testing.T, via, direct, schema string) {
	t.Helper()
	tenSeconds := time.After(10 * time.Second)
	s, other := open(t, via, schema), open(t, via, schema)
	h := take(t, s)
	run := beginRunOf(t, h)
	busy := func() {
		t.Helper()
		_, err := other.TryLock(t.Context(), nightly(schema))
		wantErr(t, "TryLock of the lock", err, runner.ErrBusy)
	}
	busy()
	wantWon(t, s, claimOf(nil, "alone"), true)
	wantWon(t, h, claimOf(&run, "in the run"), true)

	time.AfterFunc(3500*time.Millisecond, hold(t, direct, schema, "waits"))
	wantWon(t, h, claimOf(&run, "waits"), true)
	time.AfterFunc(500*time.Millisecond, holdUntil(t, direct, schema, "the application's", "commit"))
	wantWon(t, h, claimOf(&run, "the application's"), false)

	<-tenSeconds
	wantHeld(t, h)
	busy()
	wantWon(t, s, claimOf(nil, "alone"), false)
	wantWon(t, h, claimOf(&run, "in the run"), false)
	if err := h.Finish(t.Context(), run, runner.RunEnd{Outcome: runner.RunSucceeded}); err != nil {
		t.Errorf("Finish() = %v", err)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v", err)
	}
	takeOnceFree(t, other, soon)
}

// needsSetting skips a test of a setting that the server does not know.
func needsSetting(t *testing.T, url, setting string) {
	t.Helper()
	name, _, _ := strings.Cut(setting, " ")
	if len(pgtest.Query(t, url, "select name from pg_settings where name = "+quote(name))) == 0 {
		pgtest.Skip(t, "a PostgreSQL that knows "+name)
	}
}

// roleWith makes a role of that name, which may log in.
func roleWith(t *testing.T, url, role string, settings ...string) {
	t.Helper()
	pgtest.Exec(t, url, "create role "+role+" login")
	t.Cleanup(func() { pgtest.Exec(t, url, "drop owned by "+role+" cascade", "drop role "+role) })
	for _, s := range settings {
		pgtest.Exec(t, url, "alter role "+role+" set "+s)
	}
}

// databaseWith makes a database of that name and returns its URL.
func databaseWith(t *testing.T, serverURL, name, how string, settings ...string) string {
	t.Helper()
	pgtest.Exec(t, serverURL, "create database "+name+" "+how)
	t.Cleanup(func() { pgtest.Exec(t, serverURL, "drop database "+name+" with (force)") })
	for _, s := range settings {
		pgtest.Exec(t, serverURL, "alter database "+name+" set "+s)
	}
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
