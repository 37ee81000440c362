package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"time"

	"modernc.org/sqlite"
)

// Config says which file the store is and how it is used.
type Config struct {
	Path string
	// Schema is accepted so that both stores are configured alike; lock keys
	// are derived from it by the caller (runner.LockKey), tables are not.
	Schema string
	// StoreWait bounds how long the store is waited for while another process
	// has it locked.
	StoreWait time.Duration
	// Created is called once, by the process that made the file.
	Created func(path string)
	// ExitsSoon is for a process that ends after Close: the database file is
	// left open then, for the system to close. See Close.
	ExitsSoon bool
	Log       *slog.Logger
}

// Store is the store in one file. Its methods may be called concurrently;
// they share one connection.
type Store struct {
	cfg  Config
	path string // absolute, without symbolic links
	db   *sql.DB
	fs   fileSystem
}

// Open returns the store at cfg.Path. It looks at the path only: the file is
// opened, and made with its folder and tables, by what uses it first.
// ErrRefused if the path is on a network file system.
func Open(cfg Config) (*Store, error) {
	path, err := resolve(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, path: path, fs: fileSystemOf}
	if err := s.checkFileSystem(path); err != nil {
		return nil, err
	}
	// fdatasync is what SQLite uses where its configure script finds it, and
	// as safe as fsync; the driver leaves the choice to the program. macOS has
	// its own way, and says so by an error.
	_, _ = sqlite.Fdatasync(true)
	if s.db, err = openDB(path); err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", path, err)
	}
	return s, nil
}

// openDB makes a pool of one connection. No pragma is set, each would cost a
// fifth of a commit: synchronous is FULL and wal_autocheckpoint 1000 by
// default (a test looks), journal_mode is kept in the file, and waiting for
// locks is done by retry, which knows the context and all kinds of busy.
func openDB(path string) (*sql.DB, error) {
	c, err := sqlite.NewConnector(dsn(path))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	return db, nil
}

// maxWALBytes is how much of PATH-wal a process that ends leaves to the next
// one: 64 pages, about 40 claims. Reading it again costs the next one 3 µs a
// page.
const maxWALBytes = 64 * (4096 + 24)

// Close gives back the connection, and does it in the cheapest safe way if the
// process ends.
//
// When the last connection to a database is closed, SQLite copies PATH-wal
// into PATH and removes it, and the next process makes it again: five syncs in
// place of one for a process that claims one id. A process that just ends
// leaves PATH-wal where it is; every commit in it is as durable. Measured on
// ext4 with fdatasync at 0.5 ms, for open, claim, end: 5.1 ms with closing,
// 4.1 ms without. Without any closing, though, PATH-wal would grow for ever,
// since how far it was copied is known only as long as somebody has it open;
// hence the limit.
func (s *Store) Close() error {
	if s.cfg.ExitsSoon {
		if st, err := os.Stat(s.path + "-wal"); err != nil || st.Size() <= maxWALBytes {
			return nil
		}
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("closing the store %s: %w", s.path, s.translate(err))
	}
	return nil
}

// write runs f in one transaction that has the write lock from its start.
func (s *Store) write(ctx context.Context, doing string, f func(*sql.Tx) error) error {
	return s.do(ctx, doing, s.patient(), func() error {
		tx, err := s.db.BeginTx(ctx, nil) // immediate: see dsn
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}
