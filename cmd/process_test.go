package cmd_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// patience is the generous upper bound of whatever a test awaits.
const patience = 60 * time.Second

// place is one store and one folder, as the processes of a test share them.
type place struct {
	t   testing.TB
	dir string   // the processes' working folder
	env []string // what they have beside PATH and HOME
}

// eachStore runs a test on both stores.
func eachStore(t *testing.T, test func(*testing.T, *place)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, newPlace(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, newPostgresPlace(t)) })
}

func newPlace(t testing.TB) *place {
	dir := t.TempDir()
	return &place{t: t, dir: dir, env: []string{"ONCECTL_STATE_DIR=" + filepath.Join(dir, "state")}}
}

func newPostgresPlace(t testing.TB) *place {
	url, schema := pgtest.Schema(t)
	return placeAt(t, url, schema)
}

func placeAt(t testing.TB, url, schema string) *place {
	return &place{t: t, dir: t.TempDir(), env: []string{"ONCECTL_DATABASE_URL=" + url, "ONCECTL_SCHEMA=" + schema}}
}

// with is the place with more environment.
func (p *place) with(env ...string) *place {
	q := *p
	q.env = append(append([]string{}, p.env...), env...)
	return &q
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// environ is what cron gives, with oncectl on the PATH.
func (p *place) environ() []string {
	return append([]string{"PATH=" + binDir + ":/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + p.path("home"), "SHELL=/bin/sh"}, p.env...)
}

// command is an oncectl that has not been started.
func (p *place) command(args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(binDir, "oncectl"), args...)
	c.Dir, c.Env = p.dir, p.environ()
	c.WaitDelay = time.Second // what a job leaves behind may keep its output open
	return c
}

// process is a started oncectl.
type process struct {
	*exec.Cmd
	t        testing.TB
	out, err safeBuffer
	done     chan struct{}
}

// start starts an oncectl, which is killed when the test ends before it.
func (p *place) start(args ...string) *process {
	return p.startCommand(p.command(args...))
}

func (p *place) startCommand(c *exec.Cmd) *process {
	p.t.Helper()
	pr := &process{Cmd: c, t: p.t, done: make(chan struct{})}
	if c.Stdout == nil {
		c.Stdout = &pr.out
	}
	if c.Stderr == nil {
		c.Stderr = &pr.err
	}
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = c.Wait() // the status is read from ProcessState
		close(pr.done)
	}()
	p.t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		<-pr.done
	})
	return pr
}

// wait returns the exit status, as a shell has it.
func (pr *process) wait() int {
	pr.t.Helper()
	select {
	case <-pr.done:
	case <-time.After(patience):
		pr.t.Fatalf("%v did not end within %v\nstderr: %s", pr.Args[1:], patience, pr.err.String())
	}
	ws := pr.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// ends checks the exit status.
func (pr *process) ends(want int) *process {
	pr.t.Helper()
	if got := pr.wait(); got != want {
		pr.t.Fatalf("%v ended with %d, not %d\nstdout: %s\nstderr: %s", pr.Args[1:], got, want, pr.out.String(), pr.err.String())
	}
	return pr
}

func (pr *process) signal(sig syscall.Signal) {
	pr.t.Helper()
	if err := pr.Process.Signal(sig); err != nil {
		pr.t.Fatalf("%v: %v", sig, err)
	}
}

// says awaits a text on stdout.
func (pr *process) says(text string) {
	pr.t.Helper()
	pr.t.Cleanup(func() {
		if pr.t.Failed() {
			pr.t.Logf("%v\nstdout: %s\nstderr: %s", pr.Args[1:], tail(pr.out.String()), tail(pr.err.String()))
		}
	})
	until(pr.t, "stdout has "+text, func() bool { return strings.Contains(pr.out.String(), text) })
}

// tail is the end of a long text.
func tail(s string) string { return s[max(0, len(s)-2000):] }

// complains awaits a text on stderr.
func (pr *process) complains(text string) {
	pr.t.Helper()
	until(pr.t, "stderr has "+text, func() bool { return strings.Contains(pr.err.String(), text) })
}

// until polls for what other processes bring about and cannot announce.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// exists reports whether a file is there.
func (p *place) exists(name string) bool {
	_, err := os.Stat(p.path(name))
	return err == nil
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// read is a file's text, and "" of one that is not there.
func (p *place) read(name string) string {
	p.t.Helper()
	b, err := os.ReadFile(p.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return string(b)
}

// safeBuffer is a buffer that is read while a process writes it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var _ io.Writer = (*safeBuffer)(nil)
