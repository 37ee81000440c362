package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby makes a hot standby of s and waits until it answers. It does without
// pg_basebackup, which not every distribution of the server has.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	b := &Server{Dir: tempDir(t), Port: FreePort(t), bin: s.bin, user: s.user}
	s.backUp(t, b.data())
	for name, text := range map[string]string{
		"standby.signal": "",
		"postgresql.auto.conf": fmt.Sprintf("port = %d\nunix_socket_directories = '%s'\nhot_standby = on\n"+
			"primary_conninfo = 'host=127.0.0.1 port=%d user=postgres sslmode=disable'\n", b.Port, b.Dir, s.Port),
	} {
		if err := os.WriteFile(filepath.Join(b.data(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	chown(t, b.Dir, b.user)
	b.Up(t)
	t.Cleanup(func() { b.Stop(t, "immediate") })
	return b
}

// Promote makes a standby a primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.run(t, "pg_ctl", "-D", s.data(), "-w", "promote")
}

// backUp copies the running server's files to dir. Recovery from backup_label
// makes the copy whole; the WAL for it is streamed.
func (s *Server) backUp(t testing.TB, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// The backup lasts as long as its session.
	c, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	defer c.Close(ctx)
	start, stop := "pg_backup_start('standby', true)", "pg_backup_stop(false)"
	if strings.HasPrefix(c.PgConn().ParameterStatus("server_version"), "14") {
		start, stop = "pg_start_backup('standby', true, false)", "pg_stop_backup(false, false)"
	}
	if _, err := c.Exec(ctx, "select "+start); err != nil {
		t.Fatalf("beginning a backup: %v", err)
	}
	if err := copyTree(s.data(), dir); err != nil {
		t.Fatalf("copying the server's files: %v", err)
	}
	var label string
	if err := c.QueryRow(ctx, "select labelfile from "+stop).Scan(&label); err != nil {
		t.Fatalf("ending a backup: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "backup_label"), []byte(label), 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyTree copies what a standby needs of a running server's folder.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, from)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // a temporary file of the server
		case err != nil:
			return err
		case d.IsDir():
			return os.Mkdir(to+name, 0o700)
		case strings.HasPrefix(name, "/postmaster."), strings.HasPrefix(name, "/pg_wal/"):
			return nil // its own are made at its start, and streamed
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(to+name, b, 0o600)
	})
}
