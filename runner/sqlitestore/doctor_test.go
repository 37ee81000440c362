package sqlitestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func inspect(t *testing.T, s *Store) map[string]runner.Finding {
	t.Helper()
	found, err := s.Inspect(t.Context(), time.Now)
	if err != nil {
		t.Fatalf("Inspect() = %v", err)
	}
	byCheck := map[string]runner.Finding{}
	for _, f := range found {
		byCheck[f.Check] = f
	}
	return byCheck
}

func wantFinding(t *testing.T, f runner.Finding, severity runner.Severity, found, do string) {
	t.Helper()
	if f.Severity != severity || !strings.Contains(f.Found, found) || !strings.Contains(f.Do, do) {
		t.Errorf("found %+v, want a %s on %q and %q", f, severity, found, do)
	}
}

func newStoreAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestInspect_WhenTheFileIsNotThere_IsSaidAndNotMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b.db")
	found := inspect(t, newStoreAt(t, path))
	wantFinding(t, found["file"], runner.Note, "not there yet", "")
	wantFinding(t, found["file_system"], runner.Fine, "local", "")
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("looking made the folder")
	}
}

func TestInspect_WhenTheStoreIsInUse_IsFine(t *testing.T) {
	s := newStoreAt(t, filepath.Join(t.TempDir(), "x.db"))
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := inspect(t, s)
	wantFinding(t, found["file"], runner.Fine, "x.db", "")
	wantFinding(t, found["schema"], runner.Fine, "schema version 1", "")
	if _, err := s.db.Exec("update schema_info set version = 9, oldest_binary = 9"); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, inspect(t, s)["schema"], runner.Problem, "version 9 or later", "newer oncectl")
}

func TestInspect_WhenTheFileIsOnANetworkFileSystem_IsAProblem(t *testing.T) {
	s := newStoreAt(t, filepath.Join(t.TempDir(), "x.db"))
	s.fs = func(string) (string, error) { return "NFS", nil }
	wantFinding(t, inspect(t, s)["file_system"], runner.Problem, "NFS", "local disk")
}

func TestInspect_WhenTheFileIsNoDatabase_IsAProblem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, inspect(t, newStoreAt(t, path))["schema"], runner.Problem, "not an SQLite database", "local disk")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, inspect(t, newStoreAt(t, path))["file"], runner.Problem, "is a directory", "local disk")
}
