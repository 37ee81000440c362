package process_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	patience = 60 * time.Second // the upper bound of whatever a test awaits
	soon     = 5 * time.Second  // the upper bound of what should be done at once
)

// markEnv is in the environment of all processes of a job, so that they can be
// found wherever they have gone.
const markEnv = "PROCESS_TEST_JOB"

var marks atomic.Int64

// job is a driver under test and the job that it runs.
type job struct {
	*exec.Cmd
	t        testing.TB
	plan     plan
	mark     string
	out, err *sink
	control  *os.File
	events   chan string
	ended    chan struct{}
	stdio    []*os.File // the driver's, closed here once it has them
}

// script is the plan of a shell script.
func script(text string) plan { return plan{Argv: []string{"/bin/sh", "-c", text}} }

// newJob prepares a driver. Its command can be changed before begin.
func newJob(t testing.TB, p plan) *job {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := &job{
		Cmd: exec.Command(exe), t: t, plan: p, events: make(chan string, 1000), ended: make(chan struct{}),
		mark: fmt.Sprintf("%s=%d.%d.", markEnv, os.Getpid(), marks.Add(1)),
	}
	j.Dir = t.TempDir()
	j.out, j.Stdout = j.pipe()
	j.err, j.Stderr = j.pipe()
	return j
}

// input gives the job a standard input; the function that it returns ends the
// job's read.
func (j *job) input() (goOn func()) {
	j.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		j.t.Fatal(err)
	}
	j.Stdin, j.stdio = r, append(j.stdio, r)
	j.t.Cleanup(func() { w.Close() })
	return func() { w.Close() }
}

// start prepares and begins a driver.
func start(t testing.TB, p plan) *job {
	t.Helper()
	return newJob(t, p).begin()
}

func (j *job) begin() *job {
	j.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		j.t.Fatal(err)
	}
	j.control = os.NewFile(uintptr(fds[0]), "control")
	theirs := os.NewFile(uintptr(fds[1]), "control")
	j.ExtraFiles = append(j.ExtraFiles, theirs)
	j.plan.Control = 2 + len(j.ExtraFiles)
	j.plan.Env = append([]string{j.mark, "PATH=" + os.Getenv("PATH")}, j.plan.Env...)
	text, err := json.Marshal(j.plan)
	if err != nil {
		j.t.Fatal(err)
	}
	j.Env = append(os.Environ(), planEnv+"="+string(text))
	if err := j.Start(); err != nil {
		j.t.Fatal(err)
	}
	for _, f := range append(j.stdio, theirs) {
		f.Close()
	}
	go j.listen()
	go func() {
		_ = j.Wait() // the status is in ProcessState
		close(j.ended)
	}()
	j.t.Cleanup(j.end)
	return j
}

// end leaves nothing of a test behind.
func (j *job) end() {
	_ = j.Process.Kill() // it may have ended
	<-j.ended
	// All are stopped before any is killed, so that none forks meanwhile.
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		sent := map[int]bool{}
		await(j.t, "the end of what is left of the job", func() bool {
			quiet := true
			for _, pid := range j.living() {
				if !sent[pid] {
					_ = syscall.Kill(pid, sig) // it may be dead by now
					sent[pid], quiet = true, false
				}
			}
			return quiet
		})
	}
	j.control.Close()
}

func (j *job) listen() {
	defer close(j.events)
	for lines := bufio.NewScanner(j.control); lines.Scan(); {
		j.events <- lines.Text()
	}
}

// hears awaits an event of the driver, drops those before it, and returns what
// follows the word.
func (j *job) hears(word string) string {
	j.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case e, ok := <-j.events:
			if !ok {
				j.t.Fatalf("the driver is gone before it said %q; stderr: %s", word, j.err)
			}
			if rest, found := strings.CutPrefix(e, word); found {
				return strings.TrimSpace(rest)
			}
			if strings.HasPrefix(e, "error") {
				j.t.Fatalf("the driver says: %s", e)
			}
		case <-limit:
			j.t.Fatalf("the driver did not say %q; stderr: %s", word, j.err)
		}
	}
}

// asks makes a request and awaits its success.
func (j *job) asks(request string) {
	j.t.Helper()
	if got := j.answers(request); got != "<nil>" {
		j.t.Fatalf("%s: %s", request, got)
	}
}

// answers makes a request and returns the error that it got.
func (j *job) answers(request string) string {
	j.t.Helper()
	fmt.Fprintln(j.control, request)
	return j.hears(request)
}

// ends awaits the driver's end and checks its status.
func (j *job) ends(want int) *job {
	j.t.Helper()
	select {
	case <-j.ended:
	case <-time.After(patience):
		j.t.Fatalf("it did not end; stdout: %s\nstderr: %s", j.out, j.err)
	}
	ws := j.ProcessState.Sys().(syscall.WaitStatus)
	got := ws.ExitStatus()
	if ws.Signaled() {
		got = 128 + int(ws.Signal())
	}
	if got != want {
		j.t.Fatalf("it ended with %d, not %d; stdout: %s\nstderr: %s", got, want, j.out, j.err)
	}
	return j
}

func (j *job) signal(sig syscall.Signal) {
	j.t.Helper()
	if err := j.Process.Signal(sig); err != nil {
		j.t.Fatal(err)
	}
}

// says awaits a text on the job's standard output.
func (j *job) says(text string) *job {
	j.t.Helper()
	await(j.t, fmt.Sprintf("the output %q", text), func() bool { return strings.Contains(j.out.String(), text) })
	return j
}

// living are the processes of the job that are not dead. The environment of a
// zombie is empty. The latest are looked at first: they may be gone soon, and a
// busy host has many others.
func (j *job) living() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		j.t.Fatal(err)
	}
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	for _, pid := range slices.Backward(all) {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // it may be gone
		if bytes.Contains(env, []byte(j.mark+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// guard is the pid of the driver's guard.
func (j *job) guard() int {
	j.t.Helper()
	for _, pid := range children(j.Process.Pid) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "oncectl-guard\n" {
			return pid
		}
	}
	j.t.Fatal("there is no guard")
	return 0
}

func children(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			var child int
			fmt.Sscan(word, &child)
			pids = append(pids, child)
		}
	}
	return pids
}

// state is the letter of a process's state, "" if there is none: proc(5).
func state(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(line), ") ")
	return rest[:min(1, len(rest))]
}

// await polls for what other processes bring about and cannot announce.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain awaited: %s", what)
		}
	}
}

// sink takes what comes out of a pipe.
type sink struct {
	mu  sync.Mutex
	buf bytes.Buffer
	eof chan struct{}
}

// pipe returns a sink and the pipe's end for the driver.
func (j *job) pipe() (*sink, *os.File) {
	j.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		j.t.Fatal(err)
	}
	j.stdio = append(j.stdio, w)
	s := &sink{eof: make(chan struct{})}
	go func() {
		defer close(s.eof)
		defer r.Close()
		_, _ = io.Copy(s, r)
	}()
	return s, w
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// all awaits the end of what comes and returns it.
func (s *sink) all(t testing.TB) string {
	t.Helper()
	select {
	case <-s.eof:
	case <-time.After(patience):
		t.Fatal("somebody keeps the pipe open")
	}
	return s.String()
}
