package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// lockFile opens path and takes its flock, or returns ErrBusy. The file is
// never removed, and one that somebody removed or replaced meanwhile is not
// taken for the lock: whoever comes next would lock another file.
func lockFile(path string) (*os.File, error) {
	for {
		// Close-on-exec, as every file that os opens.
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			return nil, err
		}
		same, err := isAt(f, path)
		if same {
			return f, nil
		}
		unlockFile(f)
		if err != nil {
			return nil, err
		}
	}
}

// flock retries what a signal interrupted and names what it locks.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return runner.ErrBusy
		}
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
}

// unlockFile frees the lock also where a duplicate of the descriptor lives on.
func unlockFile(f *os.File) error {
	return errors.Join(flock(f, unix.LOCK_UN), f.Close())
}

// isAt reports whether path still names the open file f.
func isAt(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(mine, there), nil
}

// identity names the open file f among all files of this machine that exist
// while f is open.
func identity(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", &fs.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return fmt.Sprintf("file %d:%d", st.Dev, st.Ino), nil
}
