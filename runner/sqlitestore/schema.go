package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// SchemaStatus implements runner.SchemaKeeper. It makes nothing.
func (s *Store) SchemaStatus(ctx context.Context) (runner.SchemaStatus, error) {
	st := runner.SchemaStatus{Binary: sqlschema.Version}
	err := s.retry(ctx, s.patient(), func() error {
		return readVersions(ctx, s.db, &st)
	})
	if err != nil && !s.needsTables(err) {
		return st, fmt.Errorf("reading the schema's version: %w", s.translate(err))
	}
	return st, nil
}

// ApplySchema implements runner.SchemaKeeper.
func (s *Store) ApplySchema(ctx context.Context) (runner.SchemaStatus, error) {
	if err := s.initialise(ctx); err != nil {
		return runner.SchemaStatus{}, fmt.Errorf("applying the schema: %w", s.translate(err))
	}
	return s.SchemaStatus(ctx)
}

// querier is what a pool, a connection and a transaction have in common.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func readVersions(ctx context.Context, q querier, st *runner.SchemaStatus) error {
	err := q.QueryRowContext(ctx, "select version, oldest_binary from schema_info").Scan(&st.Version, &st.OldestBinary)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // emptied by hand: as if there were no tables
	}
	return err
}

// refuseOld refuses tables for newer binaries.
func (s *Store) refuseOld(oldest int) error {
	if oldest <= sqlschema.Version {
		return nil
	}
	return fmt.Errorf("%w: the tables in %s are for oncectl with schema version %d or later, this one has %d: upgrade oncectl on this machine",
		runner.ErrRefused, s.path, oldest, sqlschema.Version)
}

// guard refuses tables for newer binaries and, if run is not nil, a run that
// does not have its lock's fence.
func (s *Store) guard(ctx context.Context, q querier, run *runner.Run) error {
	var oldest int
	if run == nil {
		if err := q.QueryRowContext(ctx, "select oldest_binary from schema_info").Scan(&oldest); err != nil {
			return err
		}
		return s.refuseOld(oldest)
	}
	var mine bool
	err := q.QueryRowContext(ctx, `select oldest_binary,
		exists (select 1 from fences where lock_key = ?1 and run_id = ?2 and token = ?3)
		from schema_info`, run.Lock.Key, run.ID, string(run.Token)).Scan(&oldest, &mine)
	if err != nil {
		return err
	}
	if err := s.refuseOld(oldest); err != nil {
		return err
	}
	if !mine {
		return fmt.Errorf("run %d of lock %q: %w", run.ID, run.Lock.Name, runner.ErrFenced)
	}
	return nil
}

// initialise makes what the store needs: its folders, the file in WAL mode and
// the tables, or those that this binary adds. One process at a time does it,
// under a lock of its own, since switching to WAL mode cannot wait for others
// inside SQLite; those that find the tables never come here.
func (s *Store) initialise(ctx context.Context) error {
	if err := s.makeFolders(); err != nil {
		return err
	}
	unlock, err := s.lockTables(ctx)
	if err != nil {
		return err
	}
	created, err := s.makeTables(ctx)
	unlock()
	if err == nil && created && s.cfg.Created != nil {
		s.cfg.Created(s.path)
	}
	return err
}

// makeFolders makes the folders of the database and of the locks. Dead letters
// may hold secrets, so that they are their owner's alone.
func (s *Store) makeFolders() error {
	for _, dir := range []string{filepath.Dir(s.path), s.lockDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return s.unusable(err, err)
		}
		if err := s.checkFileSystem(dir); err != nil {
			return err
		}
	}
	return nil
}

// lockTables waits until no other process is making the tables.
func (s *Store) lockTables(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(s.lockDir(), "tables.lock")
	err = s.retry(ctx, s.patient(), func() error {
		f, err := lockFile(path)
		if err == nil {
			unlock = func() { unlockFile(f) }
		}
		return err
	})
	if errors.As(err, new(*fs.PathError)) {
		return nil, s.unusable(err, err)
	}
	return unlock, err
}

// makeTables reports whether it made the file.
func (s *Store) makeTables(ctx context.Context) (created bool, err error) {
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		// No connection can have it open yet, so that closing it drops no lock.
		if err := f.Close(); err != nil {
			return false, s.unusable(err, err)
		}
		created = true
	case !errors.Is(err, fs.ErrExist):
		return false, s.unusable(err, err)
	}
	if err := s.retry(ctx, s.patient(), func() error { return s.useWAL(ctx) }); err != nil {
		return created, err
	}
	return created, s.retry(ctx, s.patient(), func() error { return s.migrate(ctx) })
}

// useWAL switches the database to WAL mode, which its file remembers.
func (s *Store) useWAL(ctx context.Context) error {
	var mode string
	if err := s.db.QueryRowContext(ctx, "pragma journal_mode = wal").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w: %s cannot be used in WAL mode, only in mode %q: its file system lacks shared memory; %s", runner.ErrRefused, s.path, mode, elsewhere)
	}
	return nil
}

// migrate runs the numbered files that the tables have not seen, in one
// transaction.
func (s *Store) migrate(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var st runner.SchemaStatus
	var exists bool
	if err := tx.QueryRowContext(ctx, "select exists (select 1 from sqlite_schema where name = 'schema_info')").Scan(&exists); err != nil {
		return err
	}
	if exists {
		if err := readVersions(ctx, tx, &st); err != nil {
			return err
		}
	}
	if err := s.refuseOld(st.OldestBinary); err != nil {
		return err
	}
	for _, m := range sqlschema.SQLite() {
		if m.Number <= st.Version {
			continue
		}
		if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
			return fmt.Errorf("running %s: %w", m.Name, err)
		}
	}
	return tx.Commit()
}
