package sqlitestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// patience is how long a locked database is waited for, and which error it is
// then.
type patience struct {
	wait time.Duration
	then error
}

// patient waits as long as the user allows.
func (s *Store) patient() patience { return patience{s.cfg.StoreWait, runner.ErrUnavailable} }

// undecided is the patience of a claim. SQLite has one writer, so that an
// application's open transaction holds up every claim, whether of the same id
// or not; as on a server, it is waited for no longer than ClaimPatience, and
// the store was there all the while.
func (s *Store) undecided() patience {
	if s.cfg.StoreWait <= runner.ClaimPatience {
		return s.patient()
	}
	return patience{runner.ClaimPatience, runner.ErrUndecided}
}

// do runs f, again while another process has the database locked, and once
// more after the file or the tables that it missed were made. doing goes into
// errors.
func (s *Store) do(ctx context.Context, doing string, p patience, f func() error) error {
	err := s.retry(ctx, p, f)
	if s.needsTables(err) {
		if err = s.initialise(ctx); err == nil {
			err = s.retry(ctx, p, f)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, s.translate(err))
	}
	return nil
}

// retry runs f until it does not find the database locked.
func (s *Store) retry(ctx context.Context, p patience, f func() error) error {
	deadline := time.Now().Add(p.wait)
	for pause := range pauses() {
		err := f()
		if !isLocked(err) {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("%s has been locked by another program for %v: %w", s.path, p.wait, p.then)
		}
		if err := sleep(ctx, min(pause, left)); err != nil {
			return fmt.Errorf("%w: waiting for %s, which another program has locked: %w", p.then, s.path, err)
		}
	}
	return nil // not reached: pauses has no end
}

// pauses yields the waits between two tries: from a millisecond, the length of
// a commit, doubling to 32 ms, each with jitter.
func pauses() func(yield func(time.Duration) bool) {
	return func(yield func(time.Duration) bool) {
		const first, most = time.Millisecond, 32 * time.Millisecond
		for base := first; ; base = min(2*base, most) {
			if !yield(base/2 + rand.N(base/2+1)) {
				return
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
