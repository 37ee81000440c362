package sqlitestore

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// wantError wants one line that wraps want and has text in it.
func wantError(t *testing.T, err, want error, text string) {
	t.Helper()
	switch {
	case !errors.Is(err, want):
		t.Fatalf("got the error %v, want %v", err, want)
	case !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n"):
		t.Errorf("the error %q is not one line with %q", err, text)
	}
}

func claimErr(t *testing.T, path string) error {
	t.Helper()
	_, err := open(t, Config{Path: path, StoreWait: time.Second}).Claim(t.Context(), claimOf("a"))
	return err
}

func TestErrors_WhenTheFileIsNoDatabase_SayWhat(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := write("notes.txt", strings.Repeat("dear diary\n", 500))
	wantError(t, claimErr(t, text), runner.ErrRefused, text+" is not an SQLite database")
	wantError(t, claimErr(t, dir), runner.ErrUnavailable, "is a directory")
	_, err := Open(Config{Path: text + "/x.db"})
	wantError(t, err, runner.ErrUnavailable, "not a directory")
	_, err = Open(Config{})
	wantError(t, err, runner.ErrInvalid, "empty")

	damaged := filepath.Join(dir, "damaged.db")
	s := open(t, Config{Path: damaged})
	mustWin(t, s, "a")
	s.Close()
	b, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(b); i++ {
		b[i] = 0xa5
	}
	if err := os.WriteFile(damaged, b, 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, claimErr(t, damaged), runner.ErrRefused, damaged+" is damaged")
}

// TestErrors_WhenThePlaceCannotBeWritten_NameItAndTheVariable runs as a user
// to whom permissions apply.
func TestErrors_WhenThePlaceCannotBeWritten_NameItAndTheVariable(t *testing.T) {
	base := t.TempDir()
	closed := filepath.Join(base, "closed")
	if err := os.Mkdir(closed, 0o755); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(closed, "used.db")
	s := open(t, Config{Path: full})
	mustWin(t, s, "a")
	s.Close()
	for _, f := range []string{full, full + "-locks"} {
		if err := os.Chmod(f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{
		"the folder cannot be made":  filepath.Join(closed, "new", "x.db"),
		"the file cannot be made":    filepath.Join(closed, "x.db"),
		"the file cannot be written": full,
	} {
		out, err := asNobody(t, closed, "claim", path, "b")
		if err == nil {
			t.Errorf("%s: the claim succeeded: %s", name, out)
		}
		for _, want := range []string{closed, "permission denied", "ONCECTL_STATE_DIR", runner.ErrUnavailable.Error()} {
			if !strings.Contains(out, want) || strings.Count(out, "\n") != 1 {
				t.Errorf("%s: the message %q is not one line with %q", name, out, want)
			}
		}
	}
}

// asNobody runs a process that permissions apply to.
func asNobody(t *testing.T, closed, what string, args ...string) (string, error) {
	t.Helper()
	cmd := process(t, what, args...)
	if os.Geteuid() != 0 {
		if err := os.Chmod(closed, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(closed, 0o755) })
	} else {
		cmd.Path = publicCopy(t, cmd.Path)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// publicCopy copies the test binary to where anybody may run it, and opens the
// way there and to the test's other folders.
func publicCopy(t *testing.T, exe string) string {
	t.Helper()
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "test.exe")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// lockOut is an application with an open write transaction.
func lockOut(t *testing.T, path string) (end func()) {
	t.Helper()
	app := program(t, path)
	mustExec(t, app, "begin immediate; insert into processed_events (event_id) values ('theirs')")
	return func() { mustExec(t, app, "commit") }
}

func TestErrors_WhenATransactionStaysOpen_AreUnavailableAfterStoreWait(t *testing.T) {
	path := freshPath(t)
	s := open(t, Config{Path: path, StoreWait: 200 * time.Millisecond})
	mustWin(t, s, "a")
	lockOut(t, path)
	_, err := s.Claim(t.Context(), claimOf("b"))
	wantError(t, err, runner.ErrUnavailable, "locked by another program for 200ms")
	_, err = s.Settle(t.Context(), runner.SettleRequest{Settlements: []runner.Settlement{{ID: "a", Outcome: runner.Failed}}})
	wantError(t, err, runner.ErrUnavailable, path)
	_, err = mustTake(t, s).Begin(t.Context(), runner.BeginRequest{Token: runner.NewToken()})
	wantError(t, err, runner.ErrUnavailable, path)
	// Reading waits for nobody.
	if got, err := s.Lookup(t.Context(), []runner.EventID{"a", "theirs"}); err != nil || len(got) != 1 {
		t.Errorf("Lookup() = %v, %v", got, err)
	}
}

func TestErrors_WhenATransactionStaysOpen_AClaimIsUndecidedAfterItsPatience(t *testing.T) {
	t.Parallel()
	path := freshPath(t)
	s := open(t, Config{Path: path, StoreWait: time.Minute})
	mustWin(t, s, "a")
	end := lockOut(t, path)
	before := time.Now()
	req := claimOf("b", "theirs")
	_, err := s.Claim(t.Context(), req)
	wantError(t, err, runner.ErrUndecided, "locked by another program for 5s")
	if d := time.Since(before); d < runner.ClaimPatience || d > 2*runner.ClaimPatience {
		t.Errorf("the claim was undecided after %v", d)
	}
	end()
	if won, err := s.Claim(t.Context(), req); err != nil || !won[0] || won[1] {
		t.Errorf("the claim repeated after the transaction ended = %v, %v", won, err)
	}
}

func TestErrors_WhenATransactionEndsInTime_AreNone(t *testing.T) {
	path := freshPath(t)
	s := open(t, Config{Path: path})
	mustWin(t, s, "a")
	end := lockOut(t, path)
	done := make(chan error)
	go func() {
		_, err := s.Claim(t.Context(), claimOf("b"))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("Claim() under an open transaction = %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	end()
	if err := <-done; err != nil {
		t.Errorf("Claim() after it = %v", err)
	}
}

func TestErrors_WhenTheContextEnds_AreNotAnAnswer(t *testing.T) {
	path := freshPath(t)
	s := open(t, Config{Path: path})
	mustWin(t, s, "a")
	lockOut(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Claim(ctx, claimOf("b"))
	wantError(t, err, context.DeadlineExceeded, path)
	if !errors.Is(err, runner.ErrUnavailable) && !errors.Is(err, runner.ErrUndecided) {
		t.Errorf("Claim() = %v", err)
	}
	_, err = s.Claim(ctx, claimOf("b"))
	wantError(t, err, runner.ErrUnavailable, "")
}

func TestErrors_WhenKilledInMidClaim_TheStoreIsWhole(t *testing.T) {
	path := freshPath(t)
	mustWin(t, open(t, Config{Path: path}), "before")
	for i := range 20 {
		cmd := process(t, "claim", path, "id")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 2 * time.Millisecond) // any moment will do
		cmd.Process.Kill()
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
	}
	s := open(t, Config{Path: path})
	mustWin(t, s, "after")
	var got string
	if err := s.db.QueryRow("pragma integrity_check").Scan(&got); err != nil || got != "ok" {
		t.Errorf("integrity_check: %s, %v", got, err)
	}
}
