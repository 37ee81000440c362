// Package pgstore keeps locks, runs, claims and dead letters in PostgreSQL 14
// and later, directly or through a pooler. Each operation is one round trip
// once the tables exist: unnamed statements in one pipeline, which poolers of
// any mode keep on one server connection, in one transaction. A run's own behind
// a pooler are two, so that a wait for the pool is told from one for a row.
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sethvargo/go-retry"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// Config says which server to use, and how.
type Config struct {
	// ConnString is a URL or a keyword string; empty means libpq's environment.
	ConnString string
	Schema     string
	// StoreWait is how long an unreachable server is tried again.
	StoreWait time.Duration
	// AppName is what pg_stat_activity shows behind "oncectl": a lock's name.
	AppName string
	Log     *slog.Logger
}

// Store implements runner.Store. It connects on first use. Its methods may be
// called concurrently; statements outside of locks go over one connection.
type Store struct {
	config Config
	parsed *pgconn.Config
	schema string // quoted
	timing timing

	mu   sync.Mutex // of conn
	conn *pgconn.PgConn

	lockMu sync.Mutex // of spare
	// spare is the connection of a lock that was busy, for the next try.
	spare *pgconn.PgConn
}

// timing is the lease's numbers, which only tests change.
type timing struct {
	beat     time.Duration // between heartbeats
	deadline time.Duration // from the sending of the last answered heartbeat
	cut      time.Duration // until a connection without answers is given up
	freed    time.Duration // until the server frees a silent holder's lock
	pool     time.Duration // for a pooler to find a second server connection
}

func defaultTiming() timing {
	return timing{
		beat:     runner.HeartbeatEvery,
		deadline: runner.LeaseDeadline,
		cut:      runner.LeaseFreedBy,
		freed:    (runner.LeaseFreedAfter + runner.LeaseFreedBy) / 2,
		pool:     8 * time.Second,
	}
}

// Open checks the configuration. It does not connect. Errors do not repeat any
// part of the connection string.
func Open(c Config) (*Store, error) {
	parsed, err := parseConfig(c)
	if err != nil {
		return nil, err
	}
	if c.Schema == "" {
		c.Schema = sqlschema.DefaultSchema
	}
	return &Store{config: c, parsed: parsed, schema: sqlschema.QuoteIdent(c.Schema), timing: defaultTiming()}, nil
}

// Close closes the connections. Locks that are held have their own.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockMu.Lock()
	defer s.lockMu.Unlock()
	closeConn(s.conn)
	closeConn(s.spare)
	s.conn, s.spare = nil, nil
	return nil
}

// closeConn says good-bye, so that the server does not log a lost connection. A
// connection that was given up in a statement is closed in the background, with
// a request to cancel that statement. This waits for its end: PgBouncer before
// 1.20 dies when who asked is gone too soon (its issue 801).
func closeConn(c *pgconn.PgConn) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = c.Close(ctx) // closed either way
	select {
	case <-c.CleanupDone():
	case <-ctx.Done():
	}
}

// sql puts the schema's name into a statement.
func (s *Store) sql(text string) string { return strings.ReplaceAll(text, "{s}", s.schema) }

// do runs f on the store's connection. What another try can mend is tried
// again, with back-off, for StoreWait: f must be safe to repeat, which tokens
// see to. Missing tables are made.
func (s *Store) do(ctx context.Context, f func(context.Context, *pgconn.PgConn) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retry(ctx, func(ctx context.Context) error {
		if s.conn == nil || s.conn.IsClosed() {
			conn, err := s.connect(ctx)
			if err != nil {
				return err
			}
			s.conn = conn
		}
		err := f(ctx, s.conn)
		if isMissing(err) {
			if err = s.makeTables(ctx, s.conn); err == nil {
				err = f(ctx, s.conn)
			}
		}
		if err = standby(ctx, s.conn, err); isTransient(err) {
			closeConn(s.conn)
		}
		return err
	})
}

// retry calls f until it succeeds, fails for good or StoreWait is over.
func (s *Store) retry(ctx context.Context, f func(context.Context) error) error {
	var last error
	ctx, cancel := context.WithTimeoutCause(ctx, max(s.config.StoreWait, time.Millisecond)+s.patience(), errStoreWait)
	defer cancel()
	err := retry.Do(ctx, s.backoff(), func(ctx context.Context) error {
		last = f(ctx)
		if isTransient(last) {
			s.logTry(last)
			return retry.RetryableError(last)
		}
		return last
	})
	if err == nil {
		return nil
	}
	if last == nil {
		last = err
	}
	return s.translate(last)
}

var errStoreWait = errors.New("the time for the store is over")

// patience is what a statement may take on top of StoreWait, so that a claim
// that waits behind another program's transaction is undecided, not cut off.
func (s *Store) patience() time.Duration { return 2 * runner.ClaimPatience }

// backoff is made anew for each operation: it counts from its making.
func (s *Store) backoff() retry.Backoff {
	b := retry.NewExponential(50 * time.Millisecond)
	b = retry.WithCappedDuration(time.Second, b)
	b = retry.WithJitterPercent(30, b)
	return retry.WithMaxDuration(max(s.config.StoreWait, time.Millisecond), b)
}

func (s *Store) logTry(err error) {
	if s.config.Log != nil {
		s.config.Log.Debug("the database does not answer: trying again", "error", s.describe(err))
	}
}

// notFor refuses a schema that is for newer binaries.
func notFor(oldest int) error {
	if oldest <= sqlschema.Version {
		return nil
	}
	return fmt.Errorf("%w: its tables are for oncectl with schema version %d or later, this one has %d: use a newer oncectl", runner.ErrRefused, oldest, sqlschema.Version)
}
