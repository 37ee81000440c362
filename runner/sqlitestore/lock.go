package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// lockLook is how often a holder looks whether its lock's file is still in
// place. It is a third of HandoverWait, so that after a removal the job is
// paused before the next holder's starts.
const lockLook = runner.HandoverWait / 3

// lockDir is the folder of the lock files.
func (s *Store) lockDir() string { return s.path + "-locks" }

// lockPath is the file of the lock: its key in hex, since a name can hold
// slashes and be longer than a file name may.
func (s *Store) lockPath(id runner.LockID) string {
	return filepath.Join(s.lockDir(), fmt.Sprintf("%016x.lock", uint64(id.Key)))
}

// TryLock implements runner.Locker. It does not touch the database.
func (s *Store) TryLock(_ context.Context, id runner.LockID) (runner.HeldLock, error) {
	h, err := s.tryLock(id)
	if err != nil {
		return nil, fmt.Errorf("taking lock %q: %w", id.Name, err)
	}
	return h, nil
}

func (s *Store) tryLock(id runner.LockID) (*held, error) {
	path := s.lockPath(id)
	f, err := lockFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeFolders(); err != nil {
			return nil, err
		}
		f, err = lockFile(path)
	}
	switch {
	case errors.Is(err, runner.ErrBusy):
		return nil, err
	case err != nil:
		return nil, s.unusable(err, err)
	}
	if err := s.checkFileSystem(path); err != nil {
		unlockFile(f)
		return nil, err
	}
	who, err := identity(f)
	if err != nil {
		unlockFile(f)
		return nil, s.unusable(err, err)
	}
	h := &held{Store: s, id: id, path: path, file: f, identity: who, takenAt: time.Now(),
		lost: make(chan struct{}), released: make(chan struct{})}
	h.watcher.Go(h.watch)
	return h, nil
}

// held is a lock that is held. The kernel keeps it until every descriptor of
// its file is closed, so that it can be lost in one way only: somebody removes
// or replaces the file, and whoever comes next locks another one.
type held struct {
	*Store   // claims in its run go by the fence
	id       runner.LockID
	path     string
	file     *os.File
	identity string
	takenAt  time.Time // SQLite's clock is this machine's

	lost     chan struct{}
	released chan struct{}
	release  sync.Once
	watcher  sync.WaitGroup
}

// watch closes lost when the file is not in place any more.
func (h *held) watch() {
	look := time.NewTicker(lockLook)
	defer look.Stop()
	for {
		select {
		case <-h.released:
			return
		case <-look.C:
			if same, err := isAt(h.file, h.path); !same {
				h.cfg.Log.Warn("the lock's file was removed or replaced", "file", h.path, "error", err)
				close(h.lost)
				return
			}
		}
	}
}

// Lost implements runner.Lock.
func (h *held) Lost() <-chan struct{} { return h.lost }

// Check implements runner.Lock.
func (h *held) Check(context.Context) error {
	select {
	case <-h.released:
		return fmt.Errorf("lock %q was released: %w", h.id.Name, runner.ErrLockLost)
	case <-h.lost:
	default:
		if same, _ := isAt(h.file, h.path); same {
			return nil
		}
	}
	return fmt.Errorf("%s was removed or replaced: %w", h.path, runner.ErrLockLost)
}

// Until implements runner.Lock: the kernel keeps a lock without heartbeats.
func (h *held) Until() time.Time { return time.Time{} }

// Regain implements runner.Lock: a file that was replaced is no lock any more.
func (h *held) Regain(ctx context.Context) error { return h.Check(ctx) }

// Release implements runner.Lock.
func (h *held) Release(context.Context) error {
	var err error
	h.release.Do(func() {
		close(h.released)
		h.watcher.Wait()
		if err = unlockFile(h.file); err != nil {
			err = fmt.Errorf("releasing lock %q: %w", h.id.Name, err)
		}
	})
	return err
}

// TakenAt implements runner.HeldLock.
func (h *held) TakenAt() time.Time { return h.takenAt }

// Descriptor implements runner.HeldLock.
func (h *held) Descriptor() (*os.File, error) {
	fd, err := unix.FcntlInt(h.file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicating the descriptor of lock %q: %w", h.id.Name, err)
	}
	return os.NewFile(uintptr(fd), h.path), nil
}
