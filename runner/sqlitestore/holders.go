package sqlitestore

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// heldLocks is what the kernel tells of who holds which lock file. To try a
// lock would tell too, but whoever takes it at that instant would find it busy
// and skip a job.
type heldLocks struct {
	s *Store
	// pids are the holders by file; nil where the kernel does not tell.
	pids map[fileID]int
}

// fileID names a file of this machine.
type fileID struct {
	major, minor uint32
	inode        uint64
}

func (s *Store) heldLocks() heldLocks { return heldLocks{s, flocks()} }

// holder tells who holds the lock of run. Without the kernel's list it is the
// run, if that has no end and its process is here and alive.
func (h heldLocks) holder(run runner.PastRun) (pid int, held bool) {
	if h.pids == nil {
		host, err := os.Hostname()
		return run.PID, err == nil && !run.Finished() && run.Host == host && run.PID > 0 && unix.Kill(run.PID, 0) != unix.ESRCH
	}
	var st unix.Stat_t
	if err := unix.Stat(h.s.lockPath(run.Lock), &st); err != nil {
		return 0, false
	}
	id := fileID{unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino}
	if pid, ok := h.pids[id]; ok {
		return pid, true
	}
	// Some file systems (btrfs, overlays) show another device to stat(2) than
	// to the list of locks: there the run's own process has to do.
	for other, pid := range h.pids {
		if other.inode == id.inode && pid == run.PID && !run.Finished() {
			return pid, true
		}
	}
	return 0, false
}
