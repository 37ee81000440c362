package process_test

import (
	"syscall"
	"testing"
	"time"
)

// allAre reports whether every process of the job is stopped, or none.
func (j *job) allAre(stopped bool) bool {
	for _, pid := range j.living() {
		if s := state(pid); (s == "T" || s == "t") != stopped {
			return false
		}
	}
	return true
}

func TestPause_WhenItReturns_AllOfTheJobIsStopped(t *testing.T) {
	t.Parallel()
	for name, c := range jobs {
		if name == "a tracer" {
			continue // what is traced belongs to its tracer
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, _ := running(t, c.script, c.n, 0)
			for range 5 {
				j.asks("pause")
				if !j.allAre(true) {
					t.Error("something runs")
				}
				j.asks("continue")
				if !j.allAre(false) {
					t.Error("something is still stopped")
				}
			}
			j.asks("kill")
			j.ends(137)
		})
	}
}

// Pausing twice, and continuing what runs, do no harm; what others had stopped
// before stays stopped.
func TestContinue_WhenSomebodyElseHadStopped_LeavesIt(t *testing.T) {
	t.Parallel()
	j, _ := running(t, "echo up; setsid sleep 300; true", 2, 0)
	var mine int
	for _, pid := range j.living() {
		mine = max(mine, pid)
	}
	if err := syscall.Kill(mine, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "one is stopped", func() bool { return state(mine) == "T" })
	j.asks("pause")
	j.asks("pause")
	j.asks("continue")
	j.asks("continue")
	if got := state(mine); got != "T" {
		t.Errorf("it is in state %q", got)
	}
	for _, pid := range j.living() {
		if pid != mine && state(pid) == "T" {
			t.Error("the other is still stopped")
		}
	}
	j.asks("kill")
	j.ends(137)
}

// A paused job stays paused whoever continues it: a shell's fg does.
func TestPause_WhenSomebodyContinuesTheCommand_StopsItAgain(t *testing.T) {
	t.Parallel()
	j, _ := running(t, jobs["a shell"].script, 2, 0)
	j.asks("pause")
	for _, pid := range j.living() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all is stopped again", func() bool { return j.allAre(true) })
	j.asks("continue")
	if !j.allAre(false) {
		t.Error("something is still stopped")
	}
	j.asks("kill")
	j.ends(137)
}

// Silence is what a stopped or starved driver shows.
func TestGuard_WhenItsDriverIsSilent_PausesTheJobUntilItIsBack(t *testing.T) {
	t.Parallel()
	for name, c := range jobs {
		if name == "a tracer" {
			continue // what is traced belongs to its tracer
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, _ := running(t, c.script, c.n, 600*time.Millisecond)
			j.signal(syscall.SIGSTOP)
			await(t, "all is stopped", func() bool { return j.allAre(true) })
			if got := len(j.living()); got != c.n {
				t.Errorf("%d processes of %d live", got, c.n)
			}
			j.signal(syscall.SIGCONT)
			j.hears("halted")
			if !j.allAre(true) {
				t.Error("it went on before anybody had looked after the lock")
			}
			j.asks("continue")
			if !j.allAre(false) {
				t.Error("something is still stopped")
			}
			j.signal(syscall.SIGKILL)
			await(t, "nothing is left", func() bool { return len(j.living()) == 0 })
		})
	}
}

func TestGuard_WhenItsSilentDriverIsKilled_KillsTheJob(t *testing.T) {
	t.Parallel()
	j, lock := running(t, jobs["sessions"].script, jobs["sessions"].n, 300*time.Millisecond)
	j.signal(syscall.SIGSTOP)
	await(t, "all is stopped", func() bool { return j.allAre(true) })
	j.signal(syscall.SIGKILL)
	freed(t, j, lock)
}

// Far less than the limit goes by between two pings.
func TestGuard_WhenItsDriverIsAlive_LeavesTheJobAlone(t *testing.T) {
	t.Parallel()
	p := script("sleep 3; exit 7")
	p.Options.Silence = 1500 * time.Millisecond
	j := start(t, p).ends(7)
	for e := range j.events {
		if e == "halted" {
			t.Error("it was paused")
		}
	}
}
