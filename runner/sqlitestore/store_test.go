package sqlitestore

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner/storetest"
)

// harness makes stores in folders of their own.
type harness struct{}

func (harness) Fresh(t testing.TB) storetest.Place {
	return &place{path: filepath.Join(t.TempDir(), "a folder", "oncectl.db")}
}

type place struct {
	path  string
	other *sql.DB
}

func (p *place) Open(t testing.TB) storetest.Store { return open(t, Config{Path: p.path}) }

// DB is a program that uses SQLite as programs do: with a timeout.
func (p *place) DB(t testing.TB) *sql.DB {
	t.Helper()
	if p.other == nil {
		db, err := sql.Open("sqlite", "file:"+p.path+"?mode=rw&_busy_timeout=10000")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		p.other = db
	}
	return p.other
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.StoreWait == 0 {
		cfg.StoreWait = 10 * time.Second
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("Open(%s) = %v", cfg.Path, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore_Conforms(t *testing.T) { storetest.Run(t, harness{}) }

func TestMain(m *testing.M) {
	os.Exit(m.Run())
}
