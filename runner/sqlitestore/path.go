package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// elsewhere is the advice where the place of the store is at fault.
const elsewhere = "set ONCECTL_STATE_DIR to a folder on a local disk that this user may write, or --database-url to another store"

// resolve returns the one name that all spellings of a path share: locks are
// files beside the database, so that two names of it would be two sets of
// locks. Parts that do not exist yet stay as they are.
func resolve(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("%w: the path is empty", runner.ErrInvalid)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%w: finding the working directory: %w", runner.ErrUnavailable, err)
	}
	rest := ""
	for dir := abs; ; dir = filepath.Dir(dir) {
		real, err := filepath.EvalSymlinks(dir)
		switch {
		case err == nil:
			return filepath.Join(real, rest), nil
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return abs, nil // opening it will say what is wrong
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// dsn is the driver's name of the database. It is not created: only create
// does that, under its lock.
func dsn(path string) string {
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?mode=rw&_txlock=immediate&_error_rc=1"
}

// diagnose finds what keeps the database from being opened or written, for the
// message only. It opens nothing: closing a second descriptor of a database
// would drop SQLite's locks.
func diagnose(path string) error {
	dir := filepath.Dir(path)
	if st, err := os.Stat(dir); err != nil {
		return err
	} else if !st.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: unix.ENOTDIR}
	}
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return &fs.PathError{Op: "open", Path: path, Err: unix.EISDIR}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil:
		if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
			return &fs.PathError{Op: "write", Path: path, Err: err}
		}
	}
	// PATH-wal is made beside it.
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}
