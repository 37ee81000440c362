package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// watch is one run from its lock to its end: the state that supervise and the
// steps around it share.
type watch struct {
	*Runner
	job    Job
	heldMu sync.Mutex // of writing held; only lease reads it elsewhere
	held   HeldLock
	begins BeginRequest
	run    Run
	// opening brings the broker, which is opened while the run is recorded.
	opening chan opened
	broker  GatedBroker
	ending  // of the child

	// outcome is set by what ended the job from outside; empty while nothing did.
	outcome RunOutcome
	reason  string // why, for the dead letter
	exit    Exit
	record  error
}

// begin records the run and waits out a predecessor.
func (w *watch) begin(ctx context.Context) (Result, error) {
	key, scheduledAt, err := w.job.key(w.held.TakenAt())
	if err != nil {
		return Result{}, err
	}
	w.begins = BeginRequest{Token: NewToken(), Key: key, ScheduledAt: scheduledAt, Host: w.Host, PID: w.PID}
	begun, err := w.held.Begin(ctx, w.begins)
	switch {
	case errors.Is(err, ErrDone):
		return w.skipped(), nil
	case err != nil:
		return Result{}, fmt.Errorf("recording the run of lock %q: %w", w.job.Lock.Name, err)
	}
	w.run = begun.Run
	w.Log.Info("took the lock", "lock", w.job.Lock.Name, "run", w.run.ID, "key", key)
	if begun.ExpiredSends {
		w.sweep(ctx)
	}
	return w.handOver(ctx, begun)
}

// skipped is a run that is not needed.
func (w *watch) skipped() Result {
	w.Log.Info("skipped: a run of this key has succeeded", "lock", w.job.Lock.Name, "key", w.begins.Key)
	return Result{Skipped: ErrDone, RecordErr: w.record}
}

// sweep makes dead letters of sends whose sender died. They are not this job's,
// which is not kept from its work by them: the next run tries again.
func (w *watch) sweep(ctx context.Context) {
	sweeper, ok := w.held.(Sweeper)
	if !ok {
		return
	}
	switch n, err := sweeper.Sweep(ctx); {
	case err != nil:
		w.Log.Warn("looking for sends that were never finished", "error", err)
	case n > 0:
		w.Log.Info("found sends that were never finished; see 'oncectl failed list'", "events", n)
	}
}

// handOver waits until the job of an unfinished predecessor is surely paused
// or dead.
func (w *watch) handOver(ctx context.Context, b Begun) (Result, error) {
	d := w.handoverWait(b)
	if d == 0 {
		return Result{}, nil
	}
	if p := b.Predecessor; p != nil {
		w.Log.Info("waiting: the run before was never finished", "before", p.ID, "host", p.Host.Name, "wait", d)
	} else {
		w.Log.Info("waiting: a run before was never finished, and who waited for it ended", "wait", d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return w.lookAgain(ctx)
		case <-w.held.Lost():
			return Result{}, w.notStarted(ctx, fmt.Errorf("waiting for the run before: lock %q: %w", w.job.Lock.Name, ErrLockLost))
		case sig := <-w.Signals:
			if endsWait(sig) {
				w.recordNotStarted(ctx, fmt.Errorf("%v before the job was started", sig))
				return Result{Interrupted: sig}, nil
			}
		}
	}
}

// lookAgain asks for the key once more: the job of the run before may have
// ended well with its lock lost, and its oncectl have recorded that meanwhile.
func (w *watch) lookAgain(ctx context.Context) (Result, error) {
	if w.begins.Key == "" {
		return Result{}, nil
	}
	switch _, err := w.held.Begin(ctx, w.begins); {
	case errors.Is(err, ErrDone):
		w.closeBroker()
		w.saveEnd(ctx, RunEnd{Outcome: RunSkipped})
		return w.skipped(), nil
	case err != nil:
		return Result{}, w.notStarted(ctx, fmt.Errorf("looking for the key of lock %q again: %w", w.job.Lock.Name, err))
	}
	return Result{}, nil
}

// notStarted records a run whose command did not start, and returns why.
func (w *watch) notStarted(ctx context.Context, why error) error {
	w.recordNotStarted(ctx, why)
	return why
}

// handoverWait is how long the job of an unfinished predecessor might go on:
// see the constants beside LeaseDeadline. What the predecessor had still to
// wait for itself counts as well: it may have been told to end meanwhile.
func (w *watch) handoverWait(b Begun) time.Duration { return max(b.Wait, w.ownWait(b)) }

func (w *watch) ownWait(b Begun) time.Duration {
	p := b.Predecessor
	if p == nil || b.NoHandover {
		return 0
	}
	gone := p.Host.ID != "" && p.Host.ID == w.Host.ID && w.Gone(p.PID)
	switch {
	case gone && b.ServerChanged:
		// Its lock went with the server, so that its guard may still be at it.
		return HandoverWait
	case gone:
		return 0
	case b.ServerChanged:
		return RestartWait
	}
	return HandoverWait
}

// lease is until when the lock that is held now is surely held: what the guard
// goes by. Where a lost lock is to stop the job the guard must not pause it,
// so that it can end as SIGTERM tells it to.
func (w *watch) lease() time.Time {
	if w.job.OnLoss == LossStop {
		return time.Time{}
	}
	w.heldMu.Lock()
	held := w.held
	w.heldMu.Unlock()
	return held.Until()
}

// opened is a broker, or why there is none.
type opened struct {
	broker GatedBroker
	err    error
}

// openBroker begins to open the broker: it takes a folder, a socket and as much
// time as a record in a local store. awaitBroker or closeBroker waits for it.
func (w *watch) openBroker() {
	w.opening = make(chan opened, 1)
	go func() {
		b, err := w.OpenBroker()
		w.opening <- opened{b, err}
	}()
}

func (w *watch) awaitBroker() error {
	if w.opening == nil {
		return nil
	}
	o := <-w.opening
	w.opening = nil
	if o.err != nil {
		return o.err
	}
	w.broker = o.broker
	return nil
}

// start starts the command.
func (w *watch) start(ctx context.Context) error {
	if err := w.awaitBroker(); err != nil {
		return fmt.Errorf("opening the broker's socket: %w", err)
	}
	w.broker.Serve(w.run, w.held)
	lockFile, err := w.held.Descriptor()
	if err != nil {
		return fmt.Errorf("handing lock %q to the guard: %w", w.job.Lock.Name, err)
	}
	child, err := w.Jobs.Start(ctx, Command{
		Argv:       w.job.Argv,
		Env:        jobEnv(w.job.Env, w.run, w.broker.Path()),
		LockFile:   lockFile,
		Lease:      w.lease,
		QuietOK:    w.job.QuietOK,
		KeepOutput: w.job.KeepOutput,
	})
	if err != nil {
		return fmt.Errorf("starting the command: %w", err)
	}
	w.ending = ending{child: child, killAfter: w.job.KillAfter, log: w.Log}
	if w.Started != nil {
		w.Started()
	}
	return nil
}

// supervise returns when the job has ended: by itself, or because of a signal,
// the time limit or the loss of the lock.
func (w *watch) supervise(ctx context.Context) {
	timeout := after(w.job.Timeout)
	lost := w.held.Lost()
	for {
		select {
		case <-w.child.Done():
			return
		case sig := <-w.Signals:
			w.signal(sig)
		case <-timeout:
			timeout = nil
			w.end(RunTimedOut, fmt.Sprintf("it ran longer than --timeout %v", w.job.Timeout))
			w.stop()
		case <-w.kill:
			w.killJob()
		case <-lost:
			lost = w.lockLost(ctx)
		case <-w.child.Halted():
			lost = w.halted(ctx, lost)
		}
	}
}

// after is time.After that never fires for 0.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// signal passes a signal to the job.
func (w *watch) signal(sig os.Signal) {
	if w.forward(sig) {
		w.end(RunStopped, "oncectl was sent SIGTERM")
	}
}

// end notes why the job is being ended. What ended it first is what is
// recorded.
func (w *watch) end(outcome RunOutcome, reason string) {
	if w.outcome == "" {
		w.outcome, w.reason = outcome, reason
		w.Log.Info("ending the job", "why", reason)
	}
}

// finish ends what is left of a job that was stopped, shows or drops its
// output, closes the broker and records the outcome.
func (w *watch) finish(ctx context.Context) {
	if w.outcome != "" {
		w.killJob()
	}
	w.exit = w.child.Exit()
	if w.outcome == "" {
		w.outcome = RunSucceeded
		if !w.exit.OK() {
			w.outcome, w.reason = RunFailed, "the command ended with "+w.exit.String()
		}
	}
	end := RunEnd{Outcome: w.outcome, ExitCode: w.exit.Status(), Started: true, DeadLetter: w.deadLetter()}
	closed := make(chan error, 1)
	go func() { closed <- w.child.Close(w.outcome != RunSucceeded) }()
	w.closeBroker()
	w.saveEnd(ctx, end)
	if err := <-closed; err != nil {
		w.Log.Warn("closing the job", "error", err)
	}
}

// saveEnd records how the run ended. A signal that ended the job must not cut
// this short, so it has its own time limit.
func (w *watch) saveEnd(ctx context.Context, end RunEnd) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := w.held.Finish(ctx, w.run, end); err != nil {
		w.record = fmt.Errorf("recording the end of run %d: %w", w.run.ID, err)
	}
}

// recordNotStarted records a run whose command did not start.
func (w *watch) recordNotStarted(ctx context.Context, why error) {
	w.outcome, w.reason = RunFailed, why.Error()
	w.closeBroker()
	w.saveEnd(ctx, RunEnd{Outcome: RunFailed, ExitCode: notStartedStatus(why), DeadLetter: w.deadLetter()})
}

// notStartedStatus is the exit status that stands for a command that did not
// start, as shells have it.
func notStartedStatus(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return 127
	case errors.Is(err, ErrNotExecutable):
		return 126
	}
	return 125
}

// deadLetter describes a run that did not succeed; nil for one that did.
func (w *watch) deadLetter() *DeadLetter {
	if w.outcome == RunSucceeded {
		return nil
	}
	d := commandLetter(KindRun, w.job.Lock.Name, w.job.Argv, w.job.KeepArgs)
	d.LastError = w.reason
	if w.child != nil {
		d.LastError = WithTail(w.reason, w.child.Tail())
	}
	return d
}

func (w *watch) closeBroker() {
	_ = w.awaitBroker() // a broker that could not be opened needs no closing
	if w.broker == nil {
		return
	}
	if err := w.broker.Close(); err != nil {
		w.Log.Warn("closing the broker's socket", "error", err)
	}
	w.broker = nil
}

// release gives the lock back, last of all.
func (w *watch) release(ctx context.Context) {
	w.closeBroker()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := w.held.Release(ctx); err != nil {
		w.Log.Warn("releasing the lock", "lock", w.job.Lock.Name, "error", err)
	}
}

func (w *watch) result() Result {
	res := Result{Run: w.run, Outcome: w.outcome, Exit: w.exit, Reason: w.reason, RecordErr: w.record}
	if w.child != nil {
		res.Tail, res.Output = w.child.Tail(), w.child.Last()
	}
	return res
}

// endsWait reports whether a signal ends a wait before the job has started.
func endsWait(sig os.Signal) bool {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}
