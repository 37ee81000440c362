//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// call is an oncectl to be started.
type call struct {
	store string // pg or local
	route string // of pg: direct, proxy, pooled, session
	lock  string
	stdin string
	args  []string
}

// process is an oncectl that was started.
type process struct {
	call
	id     int
	h      *host
	began  time.Time
	cmd    *exec.Cmd
	out    bytes.Buffer
	err    bytes.Buffer
	done   chan struct{}
	status int // once done

	hit       atomic.Bool // it has had its one fault
	protected atomic.Bool // stopped for long: its connection must not end meanwhile
}

// processes are those that live.
type processes struct {
	mu    sync.Mutex
	last  int
	alive map[int]*process
	log   *os.File
}

func (w *world) nextID() int {
	w.procs.mu.Lock()
	defer w.procs.mu.Unlock()
	w.procs.last++
	return w.procs.last
}

// start starts an oncectl on a host. nil if the host is just down.
func (w *world) start(h *host, id int, c call) *process {
	p := &process{call: c, id: id, h: h, began: time.Now(), done: make(chan struct{})}
	h.mu.RLock()
	p.cmd = exec.Command(filepath.Join(w.bin, "oncectl"), c.args...)
	p.cmd.Dir = h.dir()
	p.cmd.Env = []string{"PATH=" + w.bin + ":/usr/bin:/bin", "HOME=" + h.dir(), "TMPDIR=" + h.dir(), w.storeVariable(h, c)}
	p.cmd.Stdin = strings.NewReader(c.stdin)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = 10 * time.Second
	err := h.inside(p.cmd.Start)
	if err == nil {
		w.procs.mu.Lock()
		w.procs.alive[id] = p
		w.procs.mu.Unlock()
	}
	h.mu.RUnlock()
	if err != nil {
		w.note("starting on %s: %v", h.name(), err)
		return nil
	}
	go w.wait(p)
	return p
}

func (w *world) wait(p *process) {
	_ = p.cmd.Wait() // the status is read below
	ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	p.status = ws.ExitStatus()
	if ws.Signaled() {
		p.status = 128 + int(ws.Signal())
	}
	w.procs.mu.Lock()
	delete(w.procs.alive, p.id)
	fmt.Fprintf(w.procs.log, "%s..%s %d: %s %s %v: %d\n", p.began.Format(clock), time.Now().Format(clock), p.id, p.h.name(), p.route, p.args, p.status)
	for line := range strings.Lines(p.err.String()) {
		fmt.Fprintf(w.procs.log, "    %d: %s\n", p.id, strings.TrimSuffix(line, "\n"))
	}
	w.procs.mu.Unlock()
	if crash.Match(p.err.Bytes()) {
		w.know(func() {
			w.crashes = append(w.crashes, fmt.Sprintf("process %d on %s, %v: %s", p.id, p.h.name(), p.args, p.err.Bytes()))
		})
	}
	w.exits.add(fmt.Sprint(p.args[0], " ", p.status), 1)
	close(p.done)
}

// crash is how Go's runtime begins to tell of one.
var crash = regexp.MustCompile(`(?m)^(panic|fatal error|runtime): `)

const clock = "15:04:05.000000"

// run is start, and waits for the end.
func (w *world) run(h *host, id int, c call) *process {
	p := w.start(h, id, c)
	if p != nil {
		<-p.done
	}
	return p
}

// living are the processes for which f is true, in the order of their start.
func (w *world) living(f func(*process) bool) (all []*process) {
	w.procs.mu.Lock()
	defer w.procs.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(w.procs.alive)) {
		if p := w.procs.alive[id]; f(p) {
			all = append(all, p)
		}
	}
	return all
}

// children are a process's children.
func children(pid int) (all []int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range threads {
		if t != fmt.Sprintf("/proc/%d/task/%d/children", pid, pid) {
			more, _ := os.ReadFile(t)
			b = append(append(b, ' '), more...)
		}
	}
	for _, s := range strings.Fields(string(b)) {
		n, _ := strconv.Atoi(s)
		all = append(all, n)
	}
	return all
}

// guardAndJob are the process's guard and its job; 0 where there is none.
func (p *process) guardAndJob() (guard, job int) {
	for _, child := range children(p.cmd.Process.Pid) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		if !strings.HasPrefix(string(line), "oncectl-guard") {
			continue
		}
		for _, j := range children(child) {
			return child, j
		}
		return child, 0
	}
	return 0, 0
}

// idle waits until no oncectl lives, or the time is over.
func (w *world) idle(d time.Duration) []*process {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for {
		left := w.living(func(*process) bool { return true })
		if len(left) == 0 || ctx.Err() != nil {
			return left
		}
		time.Sleep(50 * time.Millisecond)
	}
}
