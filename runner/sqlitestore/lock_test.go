package sqlitestore

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

var nightly = runner.LockID{Name: "nightly", Key: runner.LockKey("oncectl", "nightly")}

func mustTake(t *testing.T, s *Store) *held {
	t.Helper()
	l, err := s.TryLock(t.Context(), nightly)
	if err != nil {
		t.Fatalf("TryLock() = %v", err)
	}
	t.Cleanup(func() { l.Release(t.Context()) })
	return l.(*held)
}

func mustBegin(t *testing.T, h *held) runner.Begun {
	t.Helper()
	b, err := h.Begin(t.Context(), runner.BeginRequest{Token: runner.NewToken()})
	if err != nil {
		t.Fatalf("Begin() = %v", err)
	}
	return b
}

func wantLost(t *testing.T, h *held) {
	t.Helper()
	select {
	case <-h.Lost():
	case <-time.After(runner.HandoverWait):
		t.Fatalf("the holder has not noticed within %v, the time before the next one starts", runner.HandoverWait)
	}
	wantError(t, h.Check(t.Context()), runner.ErrLockLost, h.path)
}

// TestLock_WhenItsFileIsRemoved_IsLostBeforeTheNextStarts: a person cleans up.
func TestLock_WhenItsFileIsRemoved_IsLostBeforeTheNextStarts(t *testing.T) {
	path := freshPath(t)
	first := mustTake(t, open(t, Config{Path: path}))
	run := mustBegin(t, first).Run
	if err := os.RemoveAll(path + "-locks"); err != nil {
		t.Fatal(err)
	}
	wantError(t, first.Check(t.Context()), runner.ErrLockLost, "removed")
	second := mustTake(t, open(t, Config{Path: path}))
	b := mustBegin(t, second)
	if b.Predecessor == nil || b.Predecessor.ID != run.ID || b.NoHandover {
		t.Errorf("Begin() under a new file = %+v, want the handover wait for run %d", b, run.ID)
	}
	wantLost(t, first)
	_, err := first.Claim(t.Context(), runner.ClaimRequest{IDs: []runner.EventID{"a"}, Token: runner.NewToken(), Run: &run})
	wantError(t, err, runner.ErrFenced, "")
	if err := second.Check(t.Context()); err != nil {
		t.Errorf("the new holder: Check() = %v", err)
	}
}

func TestLock_WhenItsFileIsReplaced_IsLost(t *testing.T) {
	h := mustTake(t, open(t, Config{Path: freshPath(t)}))
	if err := os.WriteFile(h.path+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(h.path+".new", h.path); err != nil {
		t.Fatal(err)
	}
	wantLost(t, h)
}

// TestLock_WhenResumedUnderANewFile_NeedsNoHandoverThen: the run goes on under
// the file that it holds now.
func TestLock_WhenResumedUnderANewFile_NeedsNoHandoverThen(t *testing.T) {
	s := open(t, Config{Path: freshPath(t)})
	first := mustTake(t, s)
	run := mustBegin(t, first).Run
	if err := os.Remove(first.path); err != nil {
		t.Fatal(err)
	}
	second := mustTake(t, s)
	if err := second.Resume(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	second.Release(t.Context())
	if b := mustBegin(t, mustTake(t, s)); b.Predecessor == nil || !b.NoHandover {
		t.Errorf("Begin() = %+v, want no handover: the file is the one that the run held", b)
	}
}

// TestLock_WhenItsFileIsALink_IsNotFollowed: in a folder that others may write,
// a link must not make oncectl lock or create a file elsewhere.
func TestLock_WhenItsFileIsALink_IsNotFollowed(t *testing.T) {
	s := open(t, Config{Path: freshPath(t)})
	if err := os.MkdirAll(s.lockDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, s.lockPath(nightly)); err != nil {
		t.Fatal(err)
	}
	_, err := s.TryLock(t.Context(), nightly)
	wantError(t, err, runner.ErrUnavailable, s.lockPath(nightly))
	if _, err := os.Lstat(target); err == nil {
		t.Error("the link's target was made")
	}
}

func TestLock_WhenTaken_LeavesTheDatabaseAlone(t *testing.T) {
	path := freshPath(t)
	h := mustTake(t, open(t, Config{Path: path}))
	if _, err := os.Stat(path); err == nil {
		t.Error("a busy lock would pay for opening the database")
	}
	for key, want := range map[int64]string{1: "0000000000000001.lock", -1: "ffffffffffffffff.lock", -1 << 63: "8000000000000000.lock"} {
		if got := filepath.Base(h.lockPath(runner.LockID{Key: key})); got != want {
			t.Errorf("the file of lock %d is %s, want %s", key, got, want)
		}
	}
}
