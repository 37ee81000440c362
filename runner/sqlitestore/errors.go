package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/oncectl/oncectl/runner"
)

// code returns SQLite's primary result code of err, or 0 if it is not SQLite's.
// The other bits only tell variants apart: SQLITE_BUSY_SNAPSHOT is busy too.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// isLocked reports whether err will pass once another process is done.
// SQLITE_PROTOCOL is a lost race for the locks of the write-ahead log; ErrBusy
// comes from the lock under which the tables are made.
func isLocked(err error) bool {
	if errors.Is(err, runner.ErrBusy) {
		return true
	}
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// needsTables reports whether err may come from a store that was not used
// before. SQLITE_ERROR is what a missing table gives, among other things: if it
// was another one, it comes again. A file that could not be opened and has
// nothing wrong with it was made by another process just now.
func (s *Store) needsTables(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_ERROR:
		return true
	case sqlite3.SQLITE_CANTOPEN:
		_, missing := os.Lstat(s.path)
		return errors.Is(missing, fs.ErrNotExist) || diagnose(s.path) == nil
	}
	return false
}

// translate is the one place where SQLite's errors become runner's.
func (s *Store) translate(err error) error {
	switch code(err) {
	case 0:
		return s.translateOther(err)
	case sqlite3.SQLITE_INTERRUPT:
		return fmt.Errorf("%w: using %s: %w", runner.ErrUnavailable, s.path, context.Canceled)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return s.unusable(diagnose(s.path), err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: the disk of %s is full: make room, or %s", runner.ErrUnavailable, s.path, elsewhere)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("%w: %s cannot be read or written (is its disk full or failing?): %w", runner.ErrUnavailable, s.path, err)
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %s is not an SQLite database: move it away, or %s", runner.ErrRefused, s.path, elsewhere)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%w: %s is damaged: restore a backup, or save what is left with `sqlite3 %s .recover`: %w", runner.ErrRefused, s.path, s.path, err)
	case sqlite3.SQLITE_ERROR:
		return fmt.Errorf("%w: %s has tables that this oncectl cannot use: %w", runner.ErrRefused, s.path, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return fmt.Errorf("%w: %s is locked by another program", runner.ErrUnavailable, s.path)
	}
	return fmt.Errorf("%w: %s: %w", runner.ErrRefused, s.path, err)
}

// translateOther makes sure that what ends a wait is not taken for an answer.
func (s *Store) translateOther(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if errors.Is(err, runner.ErrUnavailable) || errors.Is(err, runner.ErrUndecided) {
			return err
		}
		return fmt.Errorf("%w: using %s: %w", runner.ErrUnavailable, s.path, err)
	}
	return err
}

// unusable says what is wrong with the place of the store: cause if it was
// found, else what SQLite said.
func (s *Store) unusable(cause, otherwise error) error {
	if cause == nil {
		cause = otherwise
	}
	return fmt.Errorf("%w: %w: %s", runner.ErrUnavailable, cause, elsewhere)
}
