package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testLock(t *testing.T, h Harness) {
	t.Run("WhenHeld_IsBusyForOthers", func(t *testing.T) {
		p, a := fresh(t, h)
		mustLock(t, a, "nightly")
		_, err := p.Open(t).TryLock(t.Context(), lockID(t, "nightly"))
		wantErr(t, "TryLock of a held lock", err, runner.ErrBusy)
	})
	t.Run("WhenHeld_IsBusyForTheSameHandle", func(t *testing.T) {
		_, a := fresh(t, h)
		held := mustLock(t, a, "nightly")
		_, err := a.TryLock(t.Context(), lockID(t, "nightly"))
		wantErr(t, "TryLock by the holder's own handle", err, runner.ErrBusy)
		if err := held.Check(t.Context()); err != nil {
			t.Fatalf("Check() after the second try = %v, want the lock intact", err)
		}
	})
	t.Run("WhenReleased_IsFree", func(t *testing.T) {
		p, a := fresh(t, h)
		b := p.Open(t)
		for range 5 {
			mustRelease(t, mustLock(t, a, "nightly"))
			mustRelease(t, mustLock(t, b, "nightly"))
		}
	})
	t.Run("WhenBusyBefore_CanBeTakenLater", func(t *testing.T) { testBusyBefore(t, h) })
	t.Run("WhenNamesDiffer_DoNotMeet", func(t *testing.T) {
		p, a := fresh(t, h)
		b := p.Open(t)
		for _, name := range []string{"nightly", "Nightly", "nightly ", "é", "e\u0301", "a/../b", "..", "/"} {
			mustLock(t, b, name)
		}
		mustLock(t, a, "hourly")
	})
	t.Run("WhenForeign_IsTheKeyAlone", func(t *testing.T) { testForeignLock(t, h) })
	t.Run("WhenReleased_IsFreeDespiteADuplicateDescriptor", func(t *testing.T) { testDuplicate(t, h) })
	t.Run("WhenHeld_ChecksAndIsNotLost", func(t *testing.T) { testCheck(t, h) })
	t.Run("WhenTaken_TellsTheStoresTime", func(t *testing.T) { testTakenAt(t, h) })
	t.Run("WhenTwentyTry_OneHolds", func(t *testing.T) { testLockContended(t, h) })
}

func testBusyBefore(t *testing.T, h Harness) {
	p, a := fresh(t, h)
	b := p.Open(t)
	held := mustLock(t, a, "nightly")
	for range 3 {
		_, err := b.TryLock(t.Context(), lockID(t, "nightly"))
		wantErr(t, "TryLock of a held lock", err, runner.ErrBusy)
	}
	mustRelease(t, held)
	mustLock(t, b, "nightly")
}

func testTakenAt(t *testing.T, h Harness) {
	_, a := fresh(t, h)
	// The suite's stores are on this machine, so their clock is ours.
	before := time.Now().Add(-time.Second)
	at := mustLock(t, a, "nightly").TakenAt()
	if at.Before(before) || at.After(time.Now().Add(time.Second)) {
		t.Fatalf("TakenAt() = %v, but it is %v", at, time.Now())
	}
}

func testCheck(t *testing.T, h Harness) {
	_, a := fresh(t, h)
	held := mustLock(t, a, "nightly")
	if err := held.Check(t.Context()); err != nil {
		t.Fatalf("Check() = %v", err)
	}
	mustRelease(t, held)
	select {
	case <-held.Lost():
		t.Fatal("Lost() is closed after Release")
	default:
	}
}

func testForeignLock(t *testing.T, h Harness) {
	p, a := fresh(t, h)
	b := p.Open(t)
	for _, key := range []int64{0, 1, -1, 1<<63 - 1, -1 << 63} {
		id := runner.LockID{Name: "one name", Key: key, Foreign: true}
		held, err := a.TryLock(t.Context(), id)
		for errors.Is(err, runner.ErrBusy) { // another suite on this server has it
			held, err = a.TryLock(t.Context(), id)
		}
		if err != nil {
			t.Fatalf("TryLock(key %d) = %v", key, err)
		}
		_, err = b.TryLock(t.Context(), runner.LockID{Name: "another name", Key: key, Foreign: true})
		wantErr(t, "TryLock of a held key under another name", err, runner.ErrBusy)
		mustBegin(t, held, "")
		mustRelease(t, held)
	}
}

// testDuplicate: a guard that lags behind must not keep the lock of a run that
// has released it.
func testDuplicate(t *testing.T, h Harness) {
	p, a := fresh(t, h)
	held := mustLock(t, a, "nightly")
	f, err := held.Descriptor()
	if err != nil {
		t.Fatalf("Descriptor() = %v", err)
	}
	if f == nil {
		t.Skip("this lock depends on no descriptor")
	}
	defer f.Close()
	mustRelease(t, held)
	mustLock(t, p.Open(t), "nightly")
}

// testLockContended: at no time do two hold the lock, and each that retries
// gets it in the end.
func testLockContended(t *testing.T, h Harness) {
	p, first := fresh(t, h)
	mustRelease(t, mustLock(t, first, "nightly"))
	var holders, most, turns atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		s := p.Open(t)
		wg.Go(func() {
			for {
				held, err := s.TryLock(t.Context(), lockID(t, "nightly"))
				if err == nil {
					if n := holders.Add(1); n > most.Load() {
						most.Store(n)
					}
					turns.Add(1)
					holders.Add(-1)
					if err := held.Release(t.Context()); err != nil {
						t.Errorf("Release() = %v", err)
					}
					return
				}
				if !isBusy(err) {
					t.Errorf("TryLock() = %v", err)
					return
				}
				time.Sleep(time.Millisecond) // as runner polls
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || turns.Load() != 20 {
		t.Fatalf("at most %d held the lock at once, want 1; %d of 20 had it", most.Load(), turns.Load())
	}
}
