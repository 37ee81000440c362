package process_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// jobs are commands that are hard to end as a whole, with the number of their
// processes.
var jobs = map[string]struct {
	script string
	n      int
}{
	"plain":    {"echo up; exec sleep 300", 1},
	"a shell":  {"echo up; sleep 300; true", 2},
	"timeout":  {"echo up; timeout 60 sleep 50; true", 3},
	"sessions": {"setsid sleep 300 & setsid sh -c 'setsid sleep 300; true' & echo up; sleep 300; true", 5},
	"orphans":  {"(setsid sh -c 'sleep 300 & sleep 300 & exit' &) ; (sleep 300 &); echo up; exec sleep 300", 4},
	"deaf":     {"trap '' TERM INT HUP QUIT; (trap '' HUP; sleep 300) & echo up; while :; do sleep 300; done", 3},
	"a tracer": {"echo up; strace -f -o /dev/null sleep 300", 3},
}

// running starts a job under a lock and awaits all of its processes.
func running(t *testing.T, text string, n int, silence time.Duration) (*job, string) {
	t.Helper()
	p := script(text)
	p.Lock, p.Options.Silence = filepath.Join(t.TempDir(), "lock"), silence
	j := start(t, p).says("up")
	await(t, "all of the job", func() bool { return len(j.living()) == n })
	return j, p.Lock
}

// freed awaits that the lock is free, and checks that by then nothing of the
// job is left.
func freed(t *testing.T, j *job, lock string) {
	t.Helper()
	fd, err := unix.Open(lock, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	begin := time.Now()
	await(t, "the lock is free", func() bool { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil })
	if left := j.living(); len(left) != 0 {
		t.Errorf("the lock is free and %v live", left)
	}
	if d := time.Since(begin); d > soon {
		t.Errorf("it took %v", d)
	}
}

func TestJob_WhenItsDriverIsKilled_DiesBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	for name, c := range jobs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for state, before := range map[string]func(*job){
				"running": func(*job) {},
				"paused":  func(j *job) { j.asks("pause") },
				"stopped by somebody": func(j *job) {
					for _, pid := range j.living() {
						_ = syscall.Kill(pid, syscall.SIGSTOP)
					}
				},
			} {
				t.Run(state, func(t *testing.T) {
					t.Parallel()
					j, lock := running(t, c.script, c.n, 0)
					before(j)
					j.signal(syscall.SIGKILL)
					freed(t, j, lock)
				})
			}
		})
	}
}

// A job that keeps forking must not escape between two looks.
func TestJob_WhenItKeepsForking_DiesWithItsDriver(t *testing.T) {
	t.Parallel()
	// Each generation starts the next and ends. It is over when the folder is gone.
	forker := filepath.Join(t.TempDir(), "forker")
	if err := os.WriteFile(forker, []byte("sleep 0.02\nsetsid sh \"$0\" &\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := script(`for i in 1 2 3 4; do setsid sh "$FORKER" & done; exec sleep 300`)
	p.Env, p.Lock = []string{"FORKER=" + forker}, filepath.Join(t.TempDir(), "lock")
	j := start(t, p)
	seen := map[int]bool{}
	await(t, "a few generations", func() bool {
		for _, pid := range j.living() {
			seen[pid] = true
		}
		return len(seen) > 30
	})
	j.signal(syscall.SIGKILL)
	freed(t, j, p.Lock)
}

// Both fall together where only one of them is killed.
func TestJob_WhenItsGuardIsKilled_DiesToo(t *testing.T) {
	t.Parallel()
	for name, c := range jobs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, lock := running(t, c.script, c.n, 0)
			if err := syscall.Kill(j.guard(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			j.ends(137)
			freed(t, j, lock)
		})
	}
}

// What ends oncectl politely is no reason for its guard to go.
func TestGuard_WhenItIsToldToEnd_Stays(t *testing.T) {
	t.Parallel()
	j, _ := running(t, "trap 'exit 3' TERM; echo up; while :; do sleep 0.5; done", 2, 0)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if err := syscall.Kill(j.guard(), sig); err != nil {
			t.Fatal(err)
		}
	}
	j.asks("pause")
	j.asks("continue")
	j.signal(syscall.SIGTERM)
	j.ends(3)
}
