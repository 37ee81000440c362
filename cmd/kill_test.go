package cmd_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What becomes of the job when oncectl itself is killed, stopped or told to end.

func TestRun_WhenKilled_NothingOfItsJobIsLeft(t *testing.T) {
	jobs := map[string]string{
		"plain":   "echo $$ >>pids; echo up; exec sleep 300",
		"timeout": `echo $$ >>pids; timeout 300 sh -c 'echo $$ >>pids; echo up; sleep 300; true'; true`,
		"nested":  `echo $$ >>pids; oncectl run --lock inner -- sh -c 'echo $$ >>pids; echo up; sleep 300; true'; true`,
		"session": `echo $$ >>pids; setsid -f sh -c 'echo $$ >>pids; sleep 300; true'; until [ $(wc -l <pids) = 2 ]; do sleep 0.01; done; echo up; sleep 300`,
	}
	for name, job := range jobs {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, p *place) {
				pr := p.start("run", "--lock", "nightly", "--", "sh", "-c", "dirname $ONCECTL_SOCKET >socket; "+job)
				pr.says("up")
				next := p.start("run", "--lock", "nightly", "--wait", "50s", "--", "sh", "-c", livingOf+`; echo "left:$left"`)
				pr.signal(syscall.SIGKILL)
				pr.ends(137)
				next.ends(0)
				// The job of the next run begins when nothing of the last one lives.
				if got := next.out.String(); got != "left:\n" {
					t.Errorf("the next run found %q", got)
				}
				if socket := strings.TrimSpace(p.read("socket")); socket == "" || exists(socket) {
					t.Errorf("the socket's folder of the killed run is left: %q", socket)
				}
				if name == "nested" {
					p.start("run", "--lock", "inner", "--wait", "20s", "--", "true").ends(0)
				}
			})
		})
	}
}

// livingOf sets left to those processes in the file pids that live. A zombie
// does not.
const livingOf = `left=; while read p; do case $(ps -o stat= -p $p) in ''|Z*) ;; *) left="$left $p";; esac; done <pids`

func TestRun_WhenKilledWhilePaused_NothingOfItsJobIsLeft(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		pr := p.start("run", "--lock", "nightly", "--", "sh", "-c", "echo $$ >pids; echo up; while :; do sleep 0.05; done")
		pr.says("up")
		job := p.pids()[0]
		if err := syscall.Kill(job, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		until(t, "the job is stopped", func() bool { return stateOf(job) == "T" })
		pr.signal(syscall.SIGKILL)
		pr.ends(137)
		until(t, "the job is dead", func() bool { return dead(job) })
		p.start("run", "--lock", "nightly", "--wait", "20s", "--", "true").ends(0)
	})
}

// A silent oncectl cannot know whether it still has the lock, so that its
// guard pauses the job until it has looked.
func TestRun_WhenStopped_TheJobIsPausedUntilItGoesOn(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		pr := p.start("run", "--lock", "nightly", "-v", "--", "sh", "-c", "echo $$ >pids; echo up; until [ -e stop ]; do sleep 0.05; done")
		pr.says("up")
		job := p.pids()[0]
		pr.signal(syscall.SIGSTOP)
		until(t, "the guard paused the job", func() bool { return stateOf(job) == "T" })
		pr.signal(syscall.SIGCONT)
		until(t, "the job goes on", func() bool { return stateOf(job) != "T" })
		p.write("stop", "")
		pr.ends(0)
		if s := pr.err.String(); !strings.Contains(s, "silent") && !strings.Contains(s, "was lost") {
			t.Errorf("it did not say what had happened: %q", pr.err.String())
		}
	})
}

func TestRun_WhenSignalled_TheJobGetsIt(t *testing.T) {
	for _, c := range []struct {
		name, job string
		sig       syscall.Signal
		status    int
	}{
		{"TERM", "echo up; sleep 300; true", syscall.SIGTERM, 143},
		{"INT", "trap 'exit 5' INT; echo up; while :; do sleep 0.02; done", syscall.SIGINT, 5},
		{"HUP", "echo up; sleep 300", syscall.SIGHUP, 129},
		{"trapped", "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done", syscall.SIGTERM, 0},
		{"USR1", "trap 'exit 9' USR1; echo up; while :; do sleep 0.02; done", syscall.SIGUSR1, 9},
		{"deaf", "trap '' TERM; echo up; while :; do sleep 0.02; done", syscall.SIGTERM, 137},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, p *place) {
				pr := p.start("run", "--lock", "nightly", "--kill-after", "1s", "--", "sh", "-c", "echo $$ >pids; "+c.job)
				pr.says("up")
				pr.signal(c.sig)
				pr.ends(c.status)
				p.start("run", "--lock", "nightly", "--", "true").ends(0)
			})
		})
	}
}

func TestRun_WhenSignalledWhileItWaits_ItEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		holder := p.start("run", "--lock", "nightly", "--", "sh", "-c", "echo up; until [ -e stop ]; do sleep 0.02; done")
		holder.says("up")
		waiter := p.start("run", "--lock", "nightly", "--wait", "1h", "-v", "--", "touch", "ran")
		waiter.signal(syscall.SIGTERM)
		waiter.ends(143)
		p.write("stop", "")
		holder.ends(0)
		if p.exists("ran") {
			t.Error("the command was run")
		}
	})
}

func TestRun_WhenTheCommandLeavesSomethingBehind_TheLockIsFree(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		pr := p.start("run", "--lock", "nightly", "--", "sh", "-c", "sleep 300 & echo $! >pids; echo ok")
		pr.ends(0)
		left := p.pids()[0]
		defer func() { _ = syscall.Kill(left, syscall.SIGKILL) }()
		if dead(left) {
			t.Error("what it left behind was killed")
		}
		p.start("run", "--lock", "nightly", "--busy-exit", "75", "--", "true").ends(0)
	})
}

// pids are the numbers that the job wrote.
func (p *place) pids() (all []int) {
	for _, s := range strings.Fields(p.read("pids")) {
		n, err := strconv.Atoi(s)
		if err != nil {
			p.t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// stateOf is the letter of a process's state, "" if there is none: proc(5).
func stateOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func dead(pid int) bool {
	s := stateOf(pid)
	return s == "" || s == "Z" || s == "X"
}
