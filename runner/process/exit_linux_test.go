package process_test

import (
	"os"
	"syscall"
	"testing"
)

func TestExit_WhenTheCommandEnds_IsItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		status int
	}{
		"success":              {"true", 0},
		"a status":             {"exit 7", 7},
		"the highest":          {"exit 255", 255},
		"TERM":                 {"kill -TERM $$", 143},
		"KILL":                 {"kill -KILL $$", 137},
		"INT":                  {"kill -INT $$", 130},
		"stopped in between":   {"(sleep 0.1; kill -CONT $$) & kill -STOP $$; exit 3", 3},
		"its child was killed": {"sh -c 'kill -KILL $$'; exit 4", 4},
		"an orphan ends first": {"(sh -c 'exit 9' &); sleep 0.1; exit 5", 5},
		"it becomes another":   {"exec sh -c 'exit 6'", 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start(t, script(c.script)).ends(c.status)
		})
	}
}

func TestSignal_WhenTheDriverGetsIt_ReachesTheJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		sig    syscall.Signal
		status int
	}{
		"TERM":             {"echo up; sleep 300; true", syscall.SIGTERM, 143},
		"INT":              {"echo up; exec sleep 300", syscall.SIGINT, 130},
		"HUP":              {"echo up; exec sleep 300", syscall.SIGHUP, 129},
		"QUIT":             {"ulimit -c 0; echo up; exec sleep 300", syscall.SIGQUIT, 131},
		"TERM, trapped":    {"trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done", syscall.SIGTERM, 0},
		"USR1, trapped":    {"trap 'exit 9' USR1; echo up; while :; do sleep 0.02; done", syscall.SIGUSR1, 9},
		"USR1, only to it": {"trap 'kill $!; wait $!; exit $?' USR1; sleep 300 & echo up; wait", syscall.SIGUSR1, 143},
		"WINCH, ignored":   {"trap 'exit 3' TERM; echo up; while :; do sleep 0.02; done", syscall.SIGWINCH, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := start(t, script(c.script)).says("up")
			j.signal(c.sig)
			if c.sig == syscall.SIGWINCH {
				j.signal(syscall.SIGTERM)
			}
			j.ends(c.status)
			if c.status > 128 {
				await(t, "nothing is left", func() bool { return len(j.living()) == 0 })
			}
		})
	}
}

// TERM reaches the command's whole group, as a terminal's keys would: a shell
// that only waits would leave its child behind.
func TestSignal_WhenAShellWaitsForItsChild_ReachesBoth(t *testing.T) {
	t.Parallel()
	j := start(t, script("sleep 300 & echo up; wait; true")).says("up")
	await(t, "the shell and its child", func() bool { return len(j.living()) == 2 })
	j.signal(syscall.SIGTERM)
	j.ends(143)
	await(t, "neither is left", func() bool { return len(j.living()) == 0 })
}

func TestSignal_WhenItWasIgnoredAtTheStart_StaysIgnored(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, script("echo up; kill -"+name+" $$; read line; exit 5"))
			// As nohup does for HUP, and a shell without job control for both others.
			j.Args = []string{"sh", "-c", `trap "" HUP INT QUIT; exec "$0"`, j.Path}
			j.Path = "/bin/sh"
			goOn := j.input()
			j.begin().says("up")
			j.signal(sig)
			goOn()
			j.ends(5)
		})
	}
}

// The guard waits for every orphan of the job, and must not take one of them
// for the command.
func TestExit_WhenOrphansEndAround_IsNeverTheirs(t *testing.T) {
	t.Parallel()
	p := script("(sh -c 'exit 3' &); (sh -c 'exit 4' &); (sh -c '(exit 5) & kill -KILL $$' &); exit 7")
	p.Runs = 300
	start(t, p).ends(7)
}

// A parent-death signal comes when the thread that made the child ends, not
// the process: Go ends threads as it likes.
func TestChild_WhenTheThreadsOfItsParentEnd_LivesOn(t *testing.T) {
	t.Parallel()
	p := script("echo up; read line; exit 7")
	p.Threads = true
	j := newJob(t, p)
	goOn := j.input()
	j.begin().hears("started")
	j.says("up")
	goOn()
	j.ends(7)
}

// After the command has ended by itself, what it left is nobody's business.
func TestClose_WhenSomethingRunsInTheBackground_LeavesIt(t *testing.T) {
	t.Parallel()
	j := start(t, script("sleep 300 & echo ok"))
	j.ends(0)
	if got := len(j.living()); got != 1 || j.out.String() != "ok\n" {
		t.Errorf("%d processes are left and the output is %q", got, j.out)
	}
}

func TestKill_WhenTheJobIsDeaf_EndsAllOfIt(t *testing.T) {
	t.Parallel()
	j := start(t, script("trap '' TERM INT HUP; setsid sleep 300 & timeout 300 sleep 200 & echo up; while :; do sleep 0.02; done")).says("up")
	await(t, "all of the job", func() bool { return len(j.living()) >= 4 })
	j.signal(syscall.SIGTERM)
	j.asks("kill")
	if left := j.living(); len(left) != 0 {
		t.Errorf("after Kill %v are left", left)
	}
	j.ends(137)
}

// As execvp(3) does, and so a shell and cron's own.
func TestStart_WhenAScriptHasNoInterpreterLine_TheShellRunsIt(t *testing.T) {
	t.Parallel()
	j := newJob(t, plan{Argv: []string{"./job", "a b", ""}})
	if err := os.WriteFile(j.Dir+"/job", []byte(`echo "$0 $# <$1>"; exit 7`), 0o755); err != nil {
		t.Fatal(err)
	}
	j.begin().ends(7)
	if got := j.out.all(t); got != "./job 2 <a b>\n" {
		t.Errorf("it says %q", got)
	}
}
