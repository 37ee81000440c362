package sqlitestore

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		os.Exit(processMain())
	}
	goleak.VerifyTestMain(m)
}

func TestStore_Conforms(t *testing.T) { storetest.Run(t, harness{}) }

// harness makes stores in folders of their own.
type harness struct{}

func (harness) Fresh(t testing.TB) storetest.Place { return &place{path: freshPath(t)} }

// freshPath is in a folder that does not exist yet.
func freshPath(t testing.TB) string { return filepath.Join(t.TempDir(), "a folder", "oncectl.db") }

type place struct {
	path  string
	other *sql.DB
}

func (p *place) Open(t testing.TB) storetest.Store { return open(t, Config{Path: p.path}) }

func (p *place) DB(t testing.TB) *sql.DB {
	if p.other == nil {
		p.other = program(t, p.path)
	}
	return p.other
}

// program is the connection of a program that uses SQLite as programs do.
func program(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=rwc&_busy_timeout=10000")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func mustExec(t testing.TB, db *sql.DB, stmt string) {
	t.Helper()
	if _, err := db.Exec(stmt); err != nil {
		t.Fatalf("%s: %v", stmt, err)
	}
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.StoreWait == 0 {
		cfg.StoreWait = time.Minute
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("Open(%s) = %v", cfg.Path, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func claimOf(ids ...runner.EventID) runner.ClaimRequest {
	return runner.ClaimRequest{IDs: ids, Token: runner.NewToken()}
}

func mustWin(t testing.TB, s *Store, id runner.EventID) {
	t.Helper()
	if won, err := s.Claim(t.Context(), claimOf(id)); err != nil || !won[0] {
		t.Fatalf("Claim(%q) = %v, %v, want it won", id, won, err)
	}
}

// TestStore_WhenOpened_IsDurable: the driver's defaults are relied on, since
// setting them costs every start.
func TestStore_WhenOpened_IsDurable(t *testing.T) {
	s := open(t, Config{Path: freshPath(t)})
	mustWin(t, s, "a")
	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "wal_autocheckpoint": "1000"} {
		var got string
		if err := s.db.QueryRow("pragma " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("pragma %s = %s, %v, want %s", pragma, got, err, want)
		}
	}
}

func TestStore_WhenPathsAreSpelledDifferently_IsTheSame(t *testing.T) {
	base := t.TempDir()
	if err := os.MkdirAll(filepath.Join(base, "real", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(base)
	for link, target := range map[string]string{"link": "real", "db": "real/x.db"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	spellings := []string{"real/x.db", base + "/real/x.db", "link/x.db", "real/sub/../x.db", "./link/./x.db"}
	for before := range spellings { // also while the file does not exist yet
		first := open(t, Config{Path: spellings[before]})
		held, err := first.TryLock(t.Context(), runner.LockID{Name: "l", Key: 1})
		if err != nil {
			t.Fatal(err)
		}
		if before > 0 {
			mustWin(t, first, runner.EventID(spellings[before]))
		}
		for _, other := range spellings {
			if _, err := open(t, Config{Path: other}).TryLock(t.Context(), runner.LockID{Name: "l", Key: 1}); err == nil {
				t.Errorf("the lock of %s is free under %s", spellings[before], other)
			}
		}
		held.Release(t.Context())
	}
	if _, err := os.Stat("db"); err != nil {
		t.Fatalf("the file is not where it was to be made: %v", err)
	}
	if _, err := open(t, Config{Path: "db"}).Claim(t.Context(), claimOf("link/x.db")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(base + "/db-locks"); err == nil {
		t.Error("a link to the file has locks of its own")
	}
}

func TestStore_WhenThePathHasOddCharacters_IsThatFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a b.db", "a?b=c&d.db", "a#b.db", "a%20b.db", "%", "é", "a+b;c'd\"e", "file:x", "-x", ":memory:", "\xff.db"} {
		s := open(t, Config{Path: filepath.Join(dir, name)})
		mustWin(t, s, "a")
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().Perm() != 0o600 {
			t.Errorf("%q has the mode %v", name, st.Mode())
		}
	}
}

// TestStore_WhenTheFileIsAnApplications_LeavesItsTablesAlone also switches it
// to WAL mode while the application has it open.
func TestStore_WhenTheFileIsAnApplications_LeavesItsTablesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app := program(t, path)
	mustExec(t, app, "create table orders (id integer primary key); insert into orders values (7)")
	s := open(t, Config{Path: path, Created: func(string) { t.Error("the file is said to be new") }})
	mustWin(t, s, "a")
	mustExec(t, app, "insert into orders values (8)")
	var n int
	if err := app.QueryRow("select count(*) + (select count(*) from processed_events) from orders").Scan(&n); err != nil || n != 3 {
		t.Errorf("orders and claims: %d, %v, want 3", n, err)
	}
	// In the application's own transaction.
	mustExec(t, app, "begin immediate; insert into processed_events (event_id) values ('b'); insert into outbox (topic, payload) values ('t', '{}'); commit")
	if won, err := s.Claim(t.Context(), claimOf("b")); err != nil || won[0] {
		t.Errorf("Claim of the application's event = %v, %v", won, err)
	}
}

func TestStore_WhenTheApplicationHasATableOfThatName_IsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app := program(t, path)
	mustExec(t, app, "create table runs (name text)")
	_, err := open(t, Config{Path: path}).Claim(t.Context(), claimOf("a"))
	wantError(t, err, runner.ErrRefused, path)
	var n int
	if err := app.QueryRow("select count(*) from sqlite_schema").Scan(&n); err != nil || n != 1 {
		t.Errorf("the refused store left %d tables, %v, want the application's one", n, err)
	}
}

func TestTimes_WhenAnotherProgramWroteThem_AreRead(t *testing.T) {
	at := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Time{
		formatTime(at):                           at,
		"2024-01-02 03:04:05":                    at, // datetime('now'), CURRENT_TIMESTAMP
		"2024-01-02 03:04:05.250":                at.Add(250 * time.Millisecond),
		"2024-01-02T04:04:05+01:00":              at,
		"2024-01-02 04:04:05.000+01:00":          at,
		"2024-01-02 03:04:05 +0000 UTC":          at, // Go's driver's default
		"2024-01-02":                             time.Date(2024, 1, 2, 0, 0, 0, 0, time.UTC),
		"":                                       {},
		"yesterday":                              {},
		formatTime(at.In(time.FixedZone("", 1))): at,
	} {
		if got := parseTime(in); !got.Equal(want) {
			t.Errorf("parseTime(%q) = %v, want %v", in, got, want)
		}
	}
	for in, want := range map[time.Duration]string{
		time.Nanosecond: "+0.001 seconds", 1500 * time.Millisecond: "+1.500 seconds",
		-59*time.Minute - 30*time.Millisecond: "-3540.030 seconds", 87600 * time.Hour: "+315360000.000 seconds",
	} {
		if got := modifier(in); got != want {
			t.Errorf("modifier(%v) = %q, want %q", in, got, want)
		}
	}
}
