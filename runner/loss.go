package runner

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// lockLost deals with a lock that died under its job, and returns the channel
// that tells of the next loss; nil when there is none to wait for.
func (w *watch) lockLost(ctx context.Context) <-chan struct{} {
	w.broker.Hold()
	if w.job.OnLoss == LossStop {
		w.Log.Warn("the lock was lost: stopping the job", "lock", w.job.Lock.Name)
		w.broker.Refuse(ErrLockLost)
		w.end(RunLost, "its lock was lost")
		w.stop()
		return nil
	}
	// Before anything else: the job must be paused before another host may
	// have the lock.
	if err := w.child.Pause(); err != nil {
		w.endLost(fmt.Sprintf("its lock was lost and it could not be paused: %v", err))
		return nil
	}
	w.Log.Warn("the lock was lost: the job is paused", "lock", w.job.Lock.Name, "grace", w.job.LockGrace)
	return w.retake(ctx)
}

// retake takes the lock again within the grace and continues the job, or ends
// it. The job is paused all the while.
func (w *watch) retake(ctx context.Context) <-chan struct{} {
	ctx, cancel := context.WithTimeout(ctx, w.job.LockGrace)
	defer cancel()
	for pause := range pollPauses() {
		held, err := w.takeAgain(ctx)
		switch {
		case err == nil:
			if err = w.resume(held); err == nil {
				return held.Lost()
			}
			w.Log.Warn("the lock was lost again", "error", err)
			continue
		case errors.Is(err, ErrFenced):
			w.endLost("its lock was lost and another run has had it since")
			return nil
		}
		w.Log.Debug("the lock is not back yet", "error", err)
		if !w.pausedFor(ctx, pause) {
			break
		}
	}
	select {
	case <-w.child.Done():
	default:
		w.endLost(fmt.Sprintf("its lock was lost and not to be had again within --lock-grace %v", w.job.LockGrace))
	}
	return nil
}

// regainTimeout bounds a look after the old lock, so that a new one is tried
// soon where the old one does not answer.
const regainTimeout = time.Second

// takeAgain finds the old lock intact after all or takes a new one, and makes
// sure that nobody ran in between.
func (w *watch) takeAgain(ctx context.Context) (HeldLock, error) {
	regainCtx, cancel := context.WithTimeout(ctx, regainTimeout)
	err := w.held.Regain(regainCtx)
	cancel()
	held := w.held
	if err != nil {
		if held, err = w.Locks.TryLock(ctx, w.job.Lock); err != nil {
			return nil, w.whoHas(ctx, err)
		}
	}
	if err := held.Resume(ctx, w.run); err != nil {
		if held != w.held {
			_ = held.Release(context.WithoutCancel(ctx)) // the error that counts is Resume's
		}
		return nil, err
	}
	return held, nil
}

// whoHas is ErrFenced where a busy lock has been taken by another run, so that
// there is nothing to wait for, else err: the server has yet to free it.
func (w *watch) whoHas(ctx context.Context, err error) error {
	if !errors.Is(err, ErrBusy) {
		return err
	}
	if fence := w.held.Resume(ctx, w.run); errors.Is(fence, ErrFenced) {
		return fence
	}
	return err
}

// resume hands a new lock to the guard and the broker and lets the job go on.
func (w *watch) resume(held HeldLock) error {
	if held != w.held {
		w.replace(held)
	}
	select {
	case <-held.Lost():
		return ErrLockLost
	default:
	}
	if err := w.child.Continue(); err != nil {
		return fmt.Errorf("continuing the job: %w", err)
	}
	w.broker.Serve(w.run, held)
	w.Log.Warn("the lock is back and nobody ran in between: the job goes on", "lock", w.job.Lock.Name)
	return nil
}

// replace puts a new lock in the place of the lost one.
func (w *watch) replace(held HeldLock) {
	f, err := held.Descriptor()
	if err == nil && f != nil {
		err = w.child.Hold(f)
	}
	if err != nil {
		w.Log.Error("handing the new lock to the guard", "error", err)
	}
	old := w.held
	w.heldMu.Lock()
	w.held = held
	w.heldMu.Unlock()
	_ = old.Release(context.Background()) // it is gone already; this frees what is left of it
}

// pausedFor waits between two tries, with an eye on what can end a paused job.
// It returns false when there is no sense in trying on.
func (w *watch) pausedFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		case <-w.child.Done():
			// It had ended before the pause reached it, or was killed since.
			if w.child.Exit().Signal == syscall.SIGKILL {
				w.end(RunLost, "its lock was lost and it was killed while it was paused")
			}
			return false
		case sig := <-w.Signals:
			w.signal(sig)
		case <-w.kill:
			w.killJob()
		case <-w.child.Halted():
		}
	}
}

// endLost kills the paused job without continuing it: it must not act once
// more, not even on SIGTERM, since another run may have begun.
func (w *watch) endLost(reason string) {
	w.Log.Error("killing the job", "why", reason)
	w.outcome, w.reason = RunLost, reason
	w.broker.Refuse(ErrLockLost)
	w.killJob()
}

// halted follows a pause by the guard: this process was stopped or starved.
// The job goes on only if the lock is still there.
func (w *watch) halted(ctx context.Context, lost <-chan struct{}) <-chan struct{} {
	w.Log.Warn("oncectl was silent for too long, so that its guard has paused the job: looking after the lock")
	w.broker.Hold()
	checkCtx, cancel := context.WithTimeout(ctx, HeartbeatEvery)
	defer cancel()
	if err := w.held.Check(checkCtx); err != nil {
		return w.lockLost(ctx)
	}
	switch err := w.child.Continue(); {
	case errors.Is(err, ErrLockLost):
		return w.lockLost(ctx)
	case err != nil:
		w.endLost(fmt.Sprintf("it was paused by its guard and could not be continued: %v", err))
		return nil
	}
	w.broker.Serve(w.run, w.held)
	return lost
}
