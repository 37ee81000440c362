package runner

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"time"
)

// The three numbers of the lease. They stand together because each is safe
// only beside the others: a holder that hears nothing pauses its job after
// LeaseDeadline, a server frees the lock of a silent holder no sooner than
// LeaseFreedAfter, and whoever takes it next from an unfinished run waits
// HandoverWait before its job starts. 15 < 20 leaves five seconds for a late
// timer, a slow pause and clocks that run at different speeds; the 3 s cover a
// connection that was closed at once (terminated backend), where the holder
// notices within milliseconds but has to pause its job's processes one by one.
const (
	HeartbeatEvery  = 5 * time.Second
	LeaseDeadline   = 15 * time.Second
	LeaseFreedAfter = 20 * time.Second
	LeaseFreedBy    = 30 * time.Second
	HandoverWait    = 3 * time.Second
	// RestartWait replaces HandoverWait where the server was restarted or
	// promoted since the predecessor's run began: its lock died with the old
	// server process, so the predecessor may still be within its deadline.
	RestartWait = LeaseFreedAfter
)

// LockKey maps a lock's name to the advisory key that PostgreSQL locks: the
// first 8 bytes of SHA-256 of "oncectl/lock/SCHEMA/NAME" as a signed
// big-endian integer. Frozen: two versions that disagree would both run.
func LockKey(schema, name string) int64 {
	sum := sha256.Sum256([]byte("oncectl/lock/" + schema + "/" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// LockID says which lock is meant.
type LockID struct {
	Name string // as people see it: runs, application_name, messages
	Key  int64  // the advisory key
	// Foreign is set for a key given by number (--lock-id): other code may
	// hold it without leaving a trace in runs or fences.
	Foreign bool
}

// Locker takes locks.
type Locker interface {
	// TryLock takes the lock or returns ErrBusy at once; it never waits for a
	// holder. Called again after ErrBusy it reuses the connection it has.
	// Other errors: ErrUnavailable, ErrRefused.
	TryLock(ctx context.Context, id LockID) (HeldLock, error)
}

// Lock is a lock that is held, and can die.
type Lock interface {
	// Lost is closed once the lock is no longer surely held: its connection is
	// closed, or LeaseDeadline has passed since the last answered heartbeat
	// was sent. It stays open after Release.
	Lost() <-chan struct{}
	// Until is when Lost closes unless a heartbeat is answered before; zero for
	// a lock without a lease.
	Until() time.Time
	// Regain looks whether a lost lock was held all the time, as when this
	// process was stopped for a while or the network was silent: nil if so, and
	// Lost returns another channel from then on. ErrLockLost says that what
	// held it is gone; any other error that this is not known yet.
	Regain(ctx context.Context) error
	// Check sends a heartbeat now and returns nil if the lock is still held,
	// else ErrLockLost.
	Check(ctx context.Context) error
	// Release gives the lock back and closes what held it. The lock is free
	// when it returns, even with an error.
	Release(ctx context.Context) error
}

// HeldLock is what TryLock returns: the lock, the record of the run under it,
// and claims that cannot commit once another run has the lock.
type HeldLock interface {
	Lock
	Recorder
	Claimer
	// TakenAt is the store's clock just after the lock was had.
	TakenAt() time.Time
	// Descriptor duplicates the descriptor whose closing frees the lock, for
	// the guard to hold. The caller closes it. It is nil where the lock does
	// not depend on one.
	Descriptor() (*os.File, error)
}
