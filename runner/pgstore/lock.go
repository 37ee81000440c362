package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// takeDirect takes a session lock, but only where the server process is the one
// that this connection was made to: behind a pooler a session lock excludes
// nobody and stays behind. There, and on a standby, it takes nothing. On a
// direct connection it also sets, for the session, what its later statements
// need; the keepalive numbers make the server free the lock of a silent holder
// between LeaseFreedAfter and LeaseFreedBy: tcp_user_timeout where an answer is
// on its way, keepalives where none is (PostgreSQL manual, "Connection
// Settings"; tcp(7)). Parameters: key, process id, freed in ms, lock timeout,
// statement timeout. A pooler's process id is 32 random bits, and may not be an
// integer to the server.
const takeDirect = `select
	case when d.direct then set_config('statement_timeout', $5, false) end,
	case when d.direct then set_config('lock_timeout', $4, false) end,
	case when d.direct then set_config('idle_in_transaction_session_timeout', '0', false) end,
	case when d.direct then set_config('idle_session_timeout', '0', false) end,
	case when d.direct and current_setting('transaction_timeout', true) is not null
		then set_config('transaction_timeout', '0', false) end,
	case when d.direct then set_config('default_transaction_read_only', 'off', false) end,
	case when d.direct then set_config('default_transaction_isolation', 'read committed', false) end,
	case when d.direct and current_setting('synchronous_commit') = 'off'
		then set_config('synchronous_commit', 'on', false) end,
	case when d.direct then set_config('tcp_user_timeout', $3, false) end,
	case when d.direct then set_config('tcp_keepalives_idle', '10', false) end,
	case when d.direct then set_config('tcp_keepalives_interval', '5', false) end,
	case when d.direct then set_config('tcp_keepalives_count', '3', false) end,
	d.direct, pg_is_in_recovery(), version(), current_setting('server_version_num'),
	case when d.direct and not pg_is_in_recovery() then pg_try_advisory_lock($1::bigint) end,
	(extract(epoch from clock_timestamp()) * 1000000)::bigint, ` + upSince + `
from (select pg_backend_pid() = $2::bigint as direct) d`

// grantedKeys and lockKey pick the advisory locks of one 64-bit key that are held,
// and their key, from pg_locks (PostgreSQL manual, "pg_locks"). The view shows the
// present, not the statement's snapshot.
const (
	grantedKeys = `l.locktype = 'advisory' and l.objsubid = 1 and l.granted`
	lockKey     = `(l.classid::bigint << 32 | l.objid::bigint)`
)

// upSince tells a server from the one that is there after a restart.
const upSince = `(extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint`

// claimTimeout ends a claim on the lock's session that waits behind one open
// transaction after the other, each for less than ClaimPatience: before the
// connection is given up for its silence, which would lose the lock.
const claimTimeout = runner.LeaseFreedAfter

// Columns of takeDirect's answer, from where the settings end.
const (
	colDirect = 12 + iota
	colRecovery
	colVersion
	colVersionNum
	colLocked
	colNow
	colUpSince
)

// TryLock implements runner.Locker.
func (s *Store) TryLock(ctx context.Context, id runner.LockID) (held runner.HeldLock, err error) {
	s.lockMu.Lock()
	defer s.lockMu.Unlock()
	err = s.retry(ctx, func(ctx context.Context) error {
		if s.spare == nil || s.spare.IsClosed() {
			c, err := s.connect(ctx)
			if err != nil {
				return err
			}
			s.spare = c
		}
		var err error
		held, err = s.tryLock(ctx, s.spare, id)
		switch {
		case err == nil:
			s.spare = nil // it is the lock's now
		case !errors.Is(err, runner.ErrBusy):
			closeConn(s.spare)
			s.spare = nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// tryLock takes the lock on c, by the way that c allows.
func (s *Store) tryLock(ctx context.Context, c conn, id runner.LockID) (runner.HeldLock, error) {
	sent := time.Now()
	results, err := pipeline(ctx, c, statement{takeDirect, []any{
		id.Key, int64(c.PID()), formatKey(s.timing.freed.Milliseconds()), formatKey(runner.ClaimPatience.Milliseconds()),
		formatKey(claimTimeout.Milliseconds()),
	}})
	if err != nil {
		return nil, err
	}
	r := results[0][0]
	if err := s.checkServer(r); err != nil {
		return nil, err
	}
	switch {
	case !r.bool(colDirect):
		return s.tryPooled(ctx, c, id)
	case !r.bool(colLocked):
		return nil, runner.ErrBusy
	}
	return s.newDirect(c, id, r.number(colUpSince), r.time(colNow), sent), nil
}

// checkServer refuses servers whose locks do not hold, by what they say in the
// very statement that takes the lock.
func (s *Store) checkServer(r row) error {
	if strings.Contains(r.text(colVersion), "CockroachDB") {
		return errCrdb
	}
	if n := r.number(colVersionNum); n < oldestServer*10000 {
		return tooOld(fmt.Sprintf("%d", n/10000))
	}
	if r.bool(colRecovery) {
		if len(hosts(s.parsed)) > 1 {
			return transient{errStandby}
		}
		return errStandby
	}
	return nil
}

// The statements of a lock behind a pooler: its transaction stays open for as
// long as the lock is held, so that the pooler keeps one server connection for
// it. A holder that falls silent is idle in transaction, and the server ends
// it. Parameters of takePooled: key, freed in ms.
const (
	poolSettings = `select set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true),
	case when current_setting('transaction_timeout', true) is not null
		then set_config('transaction_timeout', '0', true) end,
	set_config('idle_in_transaction_session_timeout', $1, true)`
	takePooled = `select pg_try_advisory_xact_lock($1::bigint), pg_backend_pid(), pg_is_in_recovery(),
	(extract(epoch from clock_timestamp()) * 1000000)::bigint`
)

// tryPooled takes a transaction-scoped lock on c. The connection for claims is
// opened, and has answered, before the lock is taken.
func (s *Store) tryPooled(ctx context.Context, c conn, id runner.LockID) (runner.HeldLock, error) {
	second, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	held, err := s.takeThroughPool(ctx, c, second, id)
	if err != nil {
		closeConn(second)
		return nil, err
	}
	return held, nil
}

func (s *Store) takeThroughPool(ctx context.Context, c, second conn, id runner.LockID) (runner.HeldLock, error) {
	if _, err := s.poolBounded(ctx, second, 0, statement{sql: "select 1"}); err != nil {
		return nil, err
	}
	sent := time.Now()
	results, err := pipeline(ctx, c,
		statement{sql: begin},
		statement{poolSettings, []any{formatKey(s.timing.freed.Milliseconds())}},
		statement{takePooled, []any{id.Key}})
	if err != nil {
		rollback(c)
		return nil, err
	}
	r := results[2][0]
	switch {
	case c.TxStatus() != 'T':
		return nil, fmt.Errorf("%w: the pooler keeps no transaction open (statement pooling), which the lock needs: use transaction or session pooling", runner.ErrRefused)
	case r.bool(2):
		rollback(c)
		return nil, errStandby
	case !r.bool(0):
		rollback(c)
		return nil, runner.ErrBusy
	}
	return s.newPooled(c, second, id, r.number(1), r.time(3), sent), nil
}

// errPool is a wait for a pooler that was too long.
var errPool = fmt.Errorf("%w: the pooler gave no second server connection", runner.ErrRefused)

// poolBounded runs statements on a second connection behind a pooler. They may
// have to wait until the pooler has a server connection to give; that wait is
// bounded, and its end says what is missing. The transaction's beginning is sent
// alone: once it is answered there is a connection, and what takes long then is
// a wait in the server, for which the pool is not to blame.
func (s *Store) poolBounded(ctx context.Context, c conn, lockTimeout time.Duration, stmts ...statement) ([][]row, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timing.pool)
	defer cancel()
	_, err := pipeline(bounded, c, beginning(lockTimeout)...)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w within %v: each run needs two, so that its pool (default_pool_size, max_db_connections) must have at least twice as many as locks are held through it", errPool, s.timing.pool)
	}
	if err != nil {
		rollback(c)
		return nil, err
	}
	patient, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	results, err := pipeline(patient, c, append(stmts, statement{sql: "commit"})...)
	if err != nil {
		rollback(c)
		return nil, err
	}
	return results[:len(stmts)], nil
}
