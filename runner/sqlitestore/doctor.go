package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// Inspect implements runner.Inspector. The clock is this machine's own.
func (s *Store) Inspect(ctx context.Context, _ func() time.Time) ([]runner.Finding, error) {
	found := []runner.Finding{s.findFileSystem()}
	place := s.findFile()
	found = append(found, place...)
	if place[len(place)-1].Severity != runner.Fine {
		return found, nil // there is nothing to read
	}
	status, err := s.SchemaStatus(ctx)
	switch {
	case errors.Is(err, runner.ErrRefused):
		return append(found, runner.Finding{Check: "schema", Severity: runner.Problem, Found: err.Error(), Do: elsewhere}), nil
	case err != nil:
		return found, fmt.Errorf("looking at the store: %w", err)
	case status.Version == 0:
		return append(found, runner.Finding{Check: "schema", Severity: runner.Note, Found: "there are no tables yet: they are made on first use"}), nil
	}
	return append(found, status.Finding()), nil
}

// findFileSystem tells what the file is on, or will be.
func (s *Store) findFileSystem() runner.Finding {
	dir := nearest(filepath.Dir(s.path))
	network, err := s.fs(dir)
	switch {
	case err != nil:
		return runner.Finding{Check: "file_system", Severity: runner.Problem, Found: err.Error(), Do: elsewhere}
	case network != "":
		return runner.Finding{Check: "file_system", Severity: runner.Problem,
			Found: fmt.Sprintf("%s is on a network file system (%s), where a local store guards nothing", dir, network), Do: elsewhere}
	}
	kind := fileSystemKind(dir)
	if kind == "" {
		kind = "of a kind that is not known"
	}
	return runner.Finding{Check: "file_system", Severity: runner.Fine, Found: "a local one: " + kind}
}

// findFile tells whether the file is there, and whether this user may use it.
func (s *Store) findFile() []runner.Finding {
	guards := runner.Finding{Check: "guards", Severity: runner.Note, Found: "a local store guards what runs on this machine and uses " + s.path,
		Do: "to guard several machines, set ONCECTL_DATABASE_URL"}
	f := runner.Finding{Check: "file", Severity: runner.Fine, Found: s.path}
	_, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		dir := nearest(filepath.Dir(s.path))
		if err = unix.Access(dir, unix.W_OK|unix.X_OK); err == nil {
			f.Severity, f.Found = runner.Note, s.path+" is not there yet: it is made on first use"
			return []runner.Finding{guards, f}
		}
		err = &fs.PathError{Op: "write", Path: dir, Err: err}
	} else {
		err = diagnose(s.path)
	}
	if err != nil {
		f.Severity, f.Found, f.Do = runner.Problem, s.path+" cannot be used: "+err.Error(), elsewhere
	}
	return []runner.Finding{guards, f}
}

// nearest is the folder, or the nearest above it that is there.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
