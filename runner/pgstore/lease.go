package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// lease owns the connection that holds a lock. One goroutine has the connection:
// it sends the heartbeats, notices at once when the connection is closed, and
// runs what others give it. The lock counts as lost when the deadline has
// passed since the last answered statement was sent.
type lease struct {
	conn   conn
	timing timing
	// backend is the server process that must answer; 0: not looked at.
	backend int64
	// look asks by another connection whether the lock is held, while a query
	// is in flight on this one; nil where only heartbeats are.
	look func(context.Context) error

	ops  chan func(context.Context)
	life context.Context
	end  context.CancelFunc
	done chan struct{} // closed when the goroutine has ended

	// socket is a duplicate of the connection's: the guard has one as well, so
	// that closing the connection alone would not end it.
	socket int

	mu       sync.Mutex
	lost     chan struct{}
	isLost   bool
	heard    time.Time // when the last answered statement was sent
	deadline *time.Timer
}

// newLease starts a lease whose last answered statement was sent at sent.
func newLease(c conn, t timing, backend int64, sent time.Time, look func(context.Context) error) *lease {
	l := &lease{
		conn: c, timing: t, backend: backend, look: look,
		ops: make(chan func(context.Context)), done: make(chan struct{}), lost: make(chan struct{}),
	}
	l.life, l.end = context.WithCancel(context.Background())
	l.socket, _ = duplicate(c) // -1 where that is not possible: nobody else has it then either
	l.heard = sent
	l.deadline = time.AfterFunc(time.Until(sent.Add(t.deadline)), l.lose)
	go l.run()
	return l
}

// lose says that the lock is no longer surely held.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isLost {
		l.isLost = true
		close(l.lost)
	}
}

func (l *lease) lostNow() (<-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost, l.isLost
}

// answered moves the deadline: a statement sent at that time had its answer.
// What is lost stays lost until regain, since the job is paused.
func (l *lease) answered(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.Before(l.heard) {
		return // looked after meanwhile
	}
	l.heard = sent
	if !l.isLost {
		l.deadline.Reset(time.Until(sent.Add(l.timing.deadline)))
	}
}

// heardSince reports whether a statement sent after t has had its answer.
func (l *lease) heardSince(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.heard.Before(t)
}

// surelyUntil is when the lock is no longer surely held, unless a heartbeat is
// answered before.
func (l *lease) surelyUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard.Add(l.timing.deadline)
}

// regain ends a loss if the connection answers, with the same server process
// behind it: then nobody else can have had the lock.
func (l *lease) regain(ctx context.Context) error {
	if err := l.enqueue(ctx, l.beatIn); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isLost {
		l.isLost, l.lost = false, make(chan struct{})
	}
	l.deadline.Reset(time.Until(l.heard.Add(l.timing.deadline)))
	return nil
}

// sever ends the connection for all who have its socket, so that the server
// frees the lock.
func (l *lease) sever() {
	if l.socket >= 0 {
		_ = unix.Shutdown(l.socket, unix.SHUT_RDWR) // it may be closed already
	}
}

// run is the goroutine that has the connection.
func (l *lease) run() {
	defer close(l.done)
	defer func() {
		if l.conn.IsClosed() {
			l.sever()
		}
	}()
	for l.life.Err() == nil {
		op, err := l.idle()
		switch {
		case op == nil && l.life.Err() != nil:
			return
		case op != nil:
			op(l.life)
		case err != nil:
			l.lose()
			return
		default:
			if l.beat() != nil {
				l.lose()
				return
			}
		}
		if l.conn.IsClosed() {
			l.lose()
			return
		}
	}
}

// idle watches the connection until the next heartbeat is due (nil, nil) or
// somebody has something to run. An error means that the connection is gone.
func (l *lease) idle() (op func(context.Context), err error) {
	ctx, cancel := context.WithTimeout(l.life, l.timing.beat)
	defer cancel()
	got := make(chan func(context.Context), 1)
	go func() {
		defer close(got)
		select {
		case op := <-l.ops:
			got <- op
			cancel()
		case <-ctx.Done():
		}
	}()
	for err == nil {
		// Nobody sends notifications on this connection; it may report
		// notices, after which the watch goes on.
		err = l.conn.WaitForNotification(ctx)
	}
	cancel()
	op = <-got
	if ctx.Err() != nil && !l.conn.IsClosed() {
		err = nil
	}
	if op != nil && err != nil {
		// The connection broke while the operation was handed over; it finds
		// that out itself.
		return op, nil
	}
	return op, err
}

// heartbeat is the cheapest statement that tells which process answers.
const heartbeat = `select pg_backend_pid()`

// beat sends a heartbeat and waits for its answer, also beyond the deadline: a
// late one shows that the lock was held all along.
func (l *lease) beat() error {
	ctx, cancel := context.WithTimeout(l.life, l.timing.cut)
	defer cancel()
	return l.beatIn(ctx)
}

func (l *lease) beatIn(ctx context.Context) error {
	sent := time.Now()
	results, err := pipeline(ctx, l.conn, statement{sql: heartbeat})
	if err != nil {
		return err
	}
	if l.backend != 0 && results[0][0].number(0) != l.backend {
		return errMoved
	}
	l.answered(sent)
	return nil
}

var errMoved = errors.New("another server process answers on the lock's connection: there is a pooler in between")

// do runs f on the connection and returns when it has run. What it was sent
// counts as a heartbeat when it had an answer. runner.ErrLockLost says that the
// connection is gone, with f's fate unknown.
func (l *lease) do(ctx context.Context, f func(context.Context) error) error {
	if _, lost := l.lostNow(); lost {
		return runner.ErrLockLost
	}
	return l.enqueue(ctx, f)
}

// enqueue is do for a lock that may be lost.
func (l *lease) enqueue(ctx context.Context, f func(context.Context) error) error {
	// The connection is the goroutine's: only there can be seen whether it is
	// closed.
	var closed bool
	result := make(chan error, 1)
	op := func(life context.Context) {
		// Not the caller's context: to cut a statement short would close the
		// connection, and with it the lock.
		bounded, cancel := context.WithTimeout(life, l.timing.cut)
		defer cancel()
		stop := l.lookAfter(bounded)
		sent := time.Now()
		err := f(bounded)
		stop()
		closed = l.conn.IsClosed()
		if err == nil || sqlState(err) != "" && !closed {
			l.answered(sent)
		}
		result <- err
	}
	select {
	case l.ops <- op:
	case <-l.done:
		return runner.ErrLockLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := <-result
	if err != nil && closed {
		l.lose()
		return fmt.Errorf("%w: %w", runner.ErrLockLost, err)
	}
	return err
}

// lookAfter makes up for the heartbeats that a query in flight keeps waiting: it
// may wait for another program's transaction or a slow disk, which is no
// silence. It returns what ends it.
func (l *lease) lookAfter(ctx context.Context) (stop func()) {
	if l.look == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		every := time.NewTicker(l.timing.beat)
		defer every.Stop()
		for {
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
			if sent := time.Now(); l.look(ctx) == nil {
				l.answered(sent)
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// stop ends the goroutine and waits for it. The connection is then the
// caller's.
func (l *lease) stop() {
	l.deadline.Stop()
	l.end()
	<-l.done
}

// close ends the connection, after stop.
func (l *lease) close() {
	closeConn(l.conn)
	l.sever()
	if l.socket >= 0 {
		_ = unix.Close(l.socket)
		l.socket = -1
	}
}
