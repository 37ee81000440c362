package sqlitestore

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// processEnv makes the test binary a process that uses a store. Its value is
// what to do; the arguments are the path and what else that needs.
const processEnv = "SQLITESTORE_TEST_PROCESS"

func processMain() int {
	s, err := Open(Config{Path: os.Args[1], StoreWait: 20 * time.Second, ExitsSoon: true,
		Created: func(string) { fmt.Println("created") }})
	if err == nil {
		err = processDo(s, os.Getenv(processEnv), os.Args[2:])
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

func processDo(s *Store, what string, args []string) error {
	ctx := context.Background()
	switch what {
	case "claim":
		ids := make([]runner.EventID, len(args))
		for i, a := range args {
			ids[i] = runner.EventID(a)
		}
		won, err := s.Claim(ctx, claimOf(ids...))
		for i, w := range won {
			if w {
				fmt.Println("won", ids[i])
			}
		}
		if err != nil {
			return err
		}
	case "hold", "hold and share":
		held, err := s.TryLock(ctx, runner.LockID{Name: "l", Key: 1})
		if err != nil {
			return err
		}
		if _, err := held.Begin(ctx, runner.BeginRequest{Token: runner.NewToken(), PID: os.Getpid()}); err != nil {
			return err
		}
		if what == "hold and share" {
			if err := share(held); err != nil {
				return err
			}
		}
		fmt.Println("held")
		io.Copy(io.Discard, os.Stdin)
	}
	return s.Close()
}

// share gives the lock's descriptor to a process that lives until standard
// input ends, as the guard does.
func share(held runner.HeldLock) error {
	f, err := held.Descriptor()
	if err != nil {
		return err
	}
	guard := exec.Command("cat")
	guard.Stdin, guard.ExtraFiles = os.Stdin, []*os.File{f}
	if err := guard.Start(); err != nil {
		return err
	}
	return f.Close()
}

// process makes a command of the test binary.
func process(t testing.TB, what string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), processEnv+"="+what)
	return cmd
}

// fifty runs 50 processes at once, each of which claims an id of its own and a
// common one, and returns what they printed.
func fifty(t *testing.T, path string) string {
	t.Helper()
	const n = 50
	out := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		cmd := process(t, "claim", path, fmt.Sprintf("own-%d", i), "common")
		wg.Go(func() {
			b, err := cmd.CombinedOutput()
			out[i] = string(b)
			if err != nil || !strings.Contains(out[i], fmt.Sprintf("won own-%d\n", i)) {
				t.Errorf("process %d: %v: %s", i, err, b)
			}
		})
	}
	wg.Wait()
	all := strings.Join(out, "")
	if got := strings.Count(all, "won common\n"); got != 1 {
		t.Errorf("the common id was won %d times", got)
	}
	return all
}

func TestFiftyProcesses_WhenTheStoreIsNew_NoneFails(t *testing.T) {
	if got := strings.Count(fifty(t, freshPath(t)), "created\n"); got != 1 {
		t.Errorf("%d processes said that they created the store", got)
	}
}

func TestFiftyProcesses_WhenTheStoreIsInUse_NoneFails(t *testing.T) {
	path := freshPath(t)
	mustWin(t, open(t, Config{Path: path}), "before")
	fifty(t, path)
}

func TestFiftyProcesses_WhenTheFileIsAnApplications_NoneFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app := program(t, path)
	mustExec(t, app, "create table orders (id integer primary key)")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := app.Exec("insert into orders values (?)", i); err != nil {
				t.Errorf("the application's insert: %v", err)
			}
			time.Sleep(5 * time.Millisecond) // a busy application, not one that never lets go
		}
	})
	if strings.Contains(fifty(t, path), "created") {
		t.Error("the application's file is said to be new")
	}
	close(stop)
	wg.Wait()
}

// TestProcesses_WhenNoneCloses_KeepTheLogShort: each leaves the log to the
// next, and it must neither grow for ever nor lose a row.
func TestProcesses_WhenNoneCloses_KeepTheLogShort(t *testing.T) {
	path := freshPath(t)
	const n = 150
	var left int
	for i := range n {
		if b, err := process(t, "claim", path, fmt.Sprint(i)).CombinedOutput(); err != nil {
			t.Fatalf("process %d: %v: %s", i, err, b)
		}
		if st, err := os.Stat(path + "-wal"); err == nil {
			left++
			if st.Size() > maxWALBytes {
				t.Fatalf("after %d processes the log has %d bytes", i, st.Size())
			}
		}
	}
	if left < n/2 {
		t.Errorf("only %d of %d processes left the log: closing costs the others syncs", left, n)
	}
	var got int
	if err := program(t, path).QueryRow("select count(*) from processed_events").Scan(&got); err != nil || got != n {
		t.Errorf("%d claims, %v, want %d", got, err, n)
	}
}

// start starts a holder of the lock; closing the returned file lets go all that
// live on its input.
func start(t *testing.T, what, path string) (*exec.Cmd, *os.File) {
	t.Helper()
	cmd := process(t, what, path)
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	b := make([]byte, 4096)
	for got := ""; !strings.Contains(got, "held\n"); {
		n, err := out.Read(b)
		if got += string(b[:n]); err != nil {
			t.Fatalf("the holder printed %q: %v", got, err)
		}
	}
	return cmd, w
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Wait()
}

func TestLock_WhenItsHolderIsKilled_IsFree(t *testing.T) {
	path := freshPath(t)
	cmd, _ := start(t, "hold", path)
	s := open(t, Config{Path: path})
	_, err := s.TryLock(t.Context(), runner.LockID{Name: "l", Key: 1})
	wantError(t, err, runner.ErrBusy, "")
	kill(t, cmd)
	held, err := s.TryLock(t.Context(), runner.LockID{Name: "l", Key: 1})
	if err != nil {
		t.Fatalf("TryLock after the holder was killed = %v", err)
	}
	defer held.Release(t.Context())
	b, err := held.Begin(t.Context(), runner.BeginRequest{Token: runner.NewToken()})
	if err != nil || b.Predecessor == nil || b.Predecessor.PID != cmd.Process.Pid || !b.NoHandover || b.ServerChanged {
		t.Errorf("Begin() = %+v, %v, want the killed one as predecessor and no handover", b, err)
	}
}

func TestLock_WhenItsGuardLivesOn_IsBusy(t *testing.T) {
	path := freshPath(t)
	cmd, w := start(t, "hold and share", path)
	kill(t, cmd)
	s := open(t, Config{Path: path})
	_, err := s.TryLock(t.Context(), runner.LockID{Name: "l", Key: 1})
	wantError(t, err, runner.ErrBusy, "")
	w.Close() // the guard ends
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		held, err := s.TryLock(t.Context(), runner.LockID{Name: "l", Key: 1})
		if err == nil {
			held.Release(t.Context())
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("TryLock after the guard ended = %v", err)
		}
	}
}
