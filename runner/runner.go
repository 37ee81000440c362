package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"
)

// Broker is the socket by which the job's own claims reach the run above it.
type Broker interface {
	// Path is the socket's path, for ONCECTL_SOCKET.
	Path() string
	// Serve answers requests by claims of run through c, from now on and until
	// the next call of Serve, Hold or Refuse.
	Serve(run Run, c Claimer)
	// Close ends the socket and waits for the requests in it.
	Close() error
}

// Gate holds back what comes through a broker while the job is paused.
type Gate interface {
	// Hold makes requests wait until Serve or Refuse.
	Hold()
	// Refuse fails the waiting and all later requests with err.
	Refuse(err error)
}

// GatedBroker is a broker with its gate.
type GatedBroker interface {
	Broker
	Gate
}

// Runner runs jobs under locks.
type Runner struct {
	Locks Locker
	Jobs  Starter
	// OpenBroker opens the run's socket before the job starts.
	OpenBroker func() (GatedBroker, error)
	// Signals brings what oncectl itself was sent.
	Signals <-chan os.Signal
	Host    Host
	PID     int
	// Gone reports whether no process of that id lives on this host.
	Gone func(pid int) bool
	// Started, if not nil, is told when the command has started. The run waits
	// for it to return.
	Started func()
	Log     *slog.Logger
}

// Result is how one Run ended.
type Result struct {
	// Skipped is ErrBusy or ErrDone if the job was not to run, else nil.
	Skipped error
	// Interrupted is the signal that ended the wait for the lock, or nil.
	Interrupted os.Signal
	Run         Run
	Outcome     RunOutcome
	Exit        Exit
	// Reason says why a job that ran did not succeed; empty if it did.
	Reason string
	// Tail and Output are the ends of its stderr and of all its output; see
	// Output in this package.
	Tail, Output []byte
	// RecordErr says why the outcome could not be recorded; the job's status
	// stands all the same.
	RecordErr error
}

// recordTimeout bounds what is done after the job has ended: the outcome is
// worth a short wait for a store that is away, not a hanging crontab line.
const recordTimeout = 15 * time.Second

// Run is the life of one run: take the lock, record the run, wait for a
// predecessor's job to be surely over, start the command, watch over it until
// it has ended, record the outcome, release. The error says why the job could
// not be run; how a job that ran ended is in the Result.
func (r *Runner) Run(ctx context.Context, job Job) (Result, error) {
	held, res, err := r.takeLock(ctx, job)
	if held == nil {
		return res, err
	}
	w := &watch{Runner: r, job: job, held: held}
	defer func() { w.release(ctx) }()
	w.openBroker()

	res, err = w.begin(ctx)
	if err != nil || res.Skipped != nil || res.Interrupted != nil {
		return res, err
	}
	if err := w.start(ctx); err != nil {
		w.recordNotStarted(ctx, err)
		return w.result(), err
	}
	w.supervise(ctx)
	w.finish(ctx)
	return w.result(), nil
}

// takeLock waits for the splay and the lock. It returns no lock where the job
// is not to run.
func (r *Runner) takeLock(ctx context.Context, job Job) (HeldLock, Result, error) {
	if d := SplayDelay(job.Splay, r.Host.Name, job.Lock.Name); d > 0 {
		r.Log.Debug("waiting for this host's part of the splay", "delay", d)
		if sig := r.sleep(ctx, d); sig != nil {
			return nil, Result{Interrupted: sig}, nil
		}
	}
	deadline := time.Now().Add(job.Wait)
	for pause := range pollPauses() {
		held, err := r.Locks.TryLock(ctx, job.Lock)
		switch {
		case err == nil:
			return held, Result{}, nil
		case !errors.Is(err, ErrBusy):
			return nil, Result{}, fmt.Errorf("taking lock %q: %w", job.Lock.Name, err)
		}
		left := time.Until(deadline)
		if left <= 0 {
			break
		}
		if sig := r.sleep(ctx, min(pause, left)); sig != nil {
			return nil, Result{Interrupted: sig}, nil
		}
	}
	r.Log.Info("skipped: the lock is held by another run", "lock", job.Lock.Name)
	return nil, Result{Skipped: ErrBusy}, nil
}

// pollPauses yields the pauses between two looks at a busy lock: from 50 ms
// doubling to a second, each with jitter, so that waiters spread out.
func pollPauses() func(yield func(time.Duration) bool) {
	return func(yield func(time.Duration) bool) {
		const first, most = 50 * time.Millisecond, time.Second
		for base := first; ; base = min(2*base, most) {
			if !yield(base/2 + rand.N(base/2+1)) {
				return
			}
		}
	}
}

// sleep waits for d and returns nil, or the signal that ended the wait. A
// context that is done counts as an interrupt.
func (r *Runner) sleep(ctx context.Context, d time.Duration) os.Signal {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return os.Interrupt
		case sig := <-r.Signals:
			if endsWait(sig) {
				return sig
			}
		}
	}
}
