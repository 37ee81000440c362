package pgstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// held is a lock that is held: a lease on the connection that holds it, and a
// way for the statements of its run.
type held struct {
	store   *Store
	id      runner.LockID
	takenAt time.Time
	lease   *lease
	// release frees the lock on the lease's connection.
	release statement
	// claims runs the run's statements: on the lock's own session where that
	// is possible, so that none can commit once the session is gone.
	claims executor
	close  func()
}

// newDirect is a lock on a session of its own.
func (s *Store) newDirect(c conn, id runner.LockID, up int64, takenAt, sent time.Time) *held {
	l := newLease(c, s.timing, int64(c.PID()), sent, s.looker(id.Key, int64(c.PID()), up))
	return &held{
		store: s, id: id, takenAt: takenAt, lease: l,
		release: statement{"select pg_advisory_unlock($1::bigint)", []any{id.Key}},
		claims:  direct{l}, close: func() {},
	}
}

// newPooled is a lock on a transaction behind a pooler.
func (s *Store) newPooled(c, second conn, id runner.LockID, backend int64, takenAt, sent time.Time) *held {
	l := newLease(c, s.timing, backend, sent, nil)
	p := &pooled{store: s, lease: l, conn: second}
	return &held{
		store: s, id: id, takenAt: takenAt, lease: l,
		release: statement{sql: "rollback"}, claims: p, close: p.close,
	}
}

// stillHeld tells whether a server process has a lock, and whether the server is
// the one that gave it. Parameters: process id, key, since when it is up.
const stillHeld = `select exists (
	select from pg_catalog.pg_locks l where ` + grantedKeys + ` and l.pid = $1::int and ` + lockKey + ` = $2::bigint
) and ` + upSince + ` = $3::bigint`

// looker returns a function that asks, on a connection of its own, whether the
// lock is held.
func (s *Store) looker(key, backend, up int64) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer closeConn(c)
		results, err := transact(ctx, c, 0, statement{stillHeld, []any{backend, key, up}})
		if err == nil && !results[0][0].bool(0) {
			err = runner.ErrLockLost
		}
		return err
	}
}

// direct runs statements on the lock's session, whose settings are those of
// takeDirect: one statement is one round trip and one transaction.
type direct struct{ lease *lease }

func (d direct) exec(ctx context.Context, _ time.Duration, stmts ...statement) (results [][]row, err error) {
	err = d.lease.do(ctx, func(ctx context.Context) error {
		results, err = pipeline(ctx, d.lease.conn, stmts...)
		return err
	})
	return results, err
}

// pooled runs statements on the second connection behind a pooler.
type pooled struct {
	store *Store
	lease *lease // of the first
	mu    sync.Mutex
	conn  conn
}

func (p *pooled) exec(ctx context.Context, lockTimeout time.Duration, stmts ...statement) (results [][]row, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := time.Now()
	defer func() {
		// Where a heartbeat since then had no answer either, the pool is not to
		// blame, and the lock is about to be lost: the request waits for that.
		if noAnswer(err) && time.Since(sent) > p.store.timing.beat && !p.lease.heardSince(sent) {
			err = fmt.Errorf("%w: %w", runner.ErrLockLost, err)
		}
	}()
	err = p.store.retry(ctx, func(ctx context.Context) error {
		if p.conn.IsClosed() {
			c, err := p.store.connect(ctx)
			if err != nil {
				return err
			}
			p.conn = c
		}
		results, err = p.store.poolBounded(ctx, p.conn, lockTimeout, stmts...)
		if isMissing(err) {
			if err = p.store.makeTables(ctx, p.conn); err == nil {
				results, err = p.store.poolBounded(ctx, p.conn, lockTimeout, stmts...)
			}
		}
		if err = standby(ctx, p.conn, err); isTransient(err) {
			closeConn(p.conn)
		}
		return err
	})
	return results, err
}

// noAnswer reports an error that a silent network may have made.
func noAnswer(err error) bool {
	return errors.Is(err, errPool) || errors.Is(err, runner.ErrUnavailable)
}

func (p *pooled) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	closeConn(p.conn)
}

// Lost implements runner.Lock.
func (h *held) Lost() <-chan struct{} {
	lost, _ := h.lease.lostNow()
	return lost
}

// Until implements runner.Lock.
func (h *held) Until() time.Time { return h.lease.surelyUntil() }

// Regain implements runner.Lock.
func (h *held) Regain(ctx context.Context) error {
	err := h.lease.regain(ctx)
	if errors.Is(err, errMoved) {
		return runner.ErrLockLost
	}
	return err
}

// Check implements runner.Lock.
func (h *held) Check(ctx context.Context) error {
	err := h.lease.do(ctx, h.lease.beatIn)
	if _, lost := h.lease.lostNow(); lost {
		return runner.ErrLockLost
	}
	if errors.Is(err, errMoved) {
		h.lease.lose()
		return runner.ErrLockLost
	}
	return err
}

// TakenAt implements runner.HeldLock.
func (h *held) TakenAt() time.Time { return h.takenAt }

// releaseTimeout bounds the last statement: a lock whose connection does not
// answer is freed by closing it.
const releaseTimeout = 3 * time.Second

// Release implements runner.Lock. The lock is given back by a statement, since
// closing the connection frees nothing while a guard holds its duplicate.
func (h *held) Release(ctx context.Context) error {
	h.lease.stop()
	defer h.close()
	defer h.lease.close()
	if h.lease.conn.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if _, err := pipeline(ctx, h.lease.conn, h.release); err != nil {
		return fmt.Errorf("releasing lock %q: %w", h.id.Name, h.store.translate(err))
	}
	return nil
}

// Descriptor implements runner.HeldLock.
func (h *held) Descriptor() (*os.File, error) {
	fd, err := duplicate(h.lease.conn)
	switch {
	case err != nil:
		return nil, fmt.Errorf("duplicating the socket of lock %q: %w", h.id.Name, err)
	case fd < 0:
		return nil, nil
	}
	return os.NewFile(uintptr(fd), "lock "+h.id.Name), nil
}

// duplicate duplicates a connection's socket, under TLS or not; -1 where it has
// none.
func duplicate(pg conn) (int, error) {
	var c net.Conn = pg.Conn()
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return -1, nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(s uintptr) { fd, dupErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		dupErr = err
	}
	return fd, dupErr
}

// exec runs statements of the run and translates their errors.
func (h *held) exec(ctx context.Context, lockTimeout time.Duration, stmts ...statement) ([][]row, error) {
	results, err := h.claims.exec(ctx, lockTimeout, stmts...)
	if err != nil {
		return nil, h.store.translate(err)
	}
	return results, nil
}

// Claim implements runner.Claimer.
func (h *held) Claim(ctx context.Context, req runner.ClaimRequest) ([]bool, error) {
	return h.store.claim(ctx, h, req)
}

// Settle implements runner.Claimer.
func (h *held) Settle(ctx context.Context, req runner.SettleRequest) ([]runner.SettleAnswer, error) {
	return h.store.settle(ctx, h, req)
}

// GiveBack implements runner.Claimer.
func (h *held) GiveBack(ctx context.Context, req runner.GiveBackRequest) ([]runner.SettleAnswer, error) {
	return h.store.giveBack(ctx, h, req)
}

// Renew implements runner.Renewer.
func (h *held) Renew(ctx context.Context, ids []runner.EventID, token runner.Token, d time.Duration) (int, error) {
	return h.store.renew(ctx, h, ids, token, d)
}

// Turn implements runner.Turner.
func (h *held) Turn(ctx context.Context, settle runner.SettleRequest, claim runner.ClaimRequest) ([]runner.SettleAnswer, []bool, error) {
	return h.store.turn(ctx, h, settle, claim)
}

// Lookup shows claims to the job.
func (h *held) Lookup(ctx context.Context, ids []runner.EventID) ([]runner.Claim, error) {
	return h.store.lookup(ctx, h, ids)
}
