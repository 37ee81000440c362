package process_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal that a job runs on.
type terminal struct {
	*job
	master *os.File
}

// onTerminal makes a terminal the driver's controlling one and all three of
// its standard streams.
func onTerminal(t *testing.T, p plan) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		skip(t, "pseudo terminals: "+err.Error())
	}
	var n int
	raw, err := master.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
				n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	j := newJob(t, p)
	j.Stdin, j.Stdout, j.Stderr, j.stdio = slave, slave, slave, append(j.stdio, slave)
	j.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	j.out = &sink{eof: make(chan struct{})}
	go func() {
		defer close(j.out.eof)
		_, _ = io.Copy(j.out, master) // EIO once the last one has closed the slave
	}()
	t.Cleanup(func() { master.Close() })
	return &terminal{job: j, master: master}
}

// types sends keys.
func (t *terminal) types(keys string) {
	t.t.Helper()
	if _, err := t.master.WriteString(keys); err != nil {
		t.t.Fatal(err)
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// A key reaches the job once: from the terminal, and not again from oncectl.
func TestTerminal_WhenCtrlCIsTyped_TheJobGetsItOnce(t *testing.T) {
	t.Parallel()
	tty := onTerminal(t, script(`n=0; trap 'n=$((n+1)); echo got $n' INT; trap 'echo total $n; exit 3' TERM; echo up; while :; do sleep 0.05; done`))
	tty.begin().says("up")
	tty.types(ctrlC)
	tty.says("got 1")
	tty.signal(syscall.SIGTERM)
	tty.says("total 1").ends(3)
}

// The driver dies of the key as its command did, so that a script around it
// ends, too.
func TestTerminal_WhenCtrlCEndsTheJob_TheDriverDiesOfItToo(t *testing.T) {
	t.Parallel()
	// The shell's child still has the shell's handler until it is sleep: a key
	// before that would be lost without oncectl, too.
	tty := onTerminal(t, script("sh -c 'echo up; exec sleep 300'; true"))
	tty.begin().says("up")
	await(t, "sleep", func() bool {
		for _, pid := range tty.living() {
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "sleep\n" {
				return true
			}
		}
		return false
	})
	tty.types(ctrlC)
	tty.ends(130)
	if !tty.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Error("it exited with 130 instead of dying of SIGINT")
	}
	await(t, "nothing is left", func() bool { return len(tty.living()) == 0 })
}

// No key sends TERM, so it is passed on here as well.
func TestTerminal_WhenTermIsSent_TheJobGetsIt(t *testing.T) {
	t.Parallel()
	tty := onTerminal(t, script("echo up; sleep 300; true"))
	tty.begin().says("up")
	await(t, "the shell and its child", func() bool { return len(tty.living()) == 2 })
	tty.signal(syscall.SIGTERM)
	tty.ends(143)
	await(t, "nothing is left", func() bool { return len(tty.living()) == 0 })
}

func TestTerminal_WhenTheJobRuns_ItHasTheTerminal(t *testing.T) {
	t.Parallel()
	tty := onTerminal(t, script(`[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && read line </dev/tty && echo "line $line"; exit 7`))
	tty.begin()
	tty.types("hello\n")
	tty.says("line hello").ends(7)
}

// Ctrl-Z stops oncectl and its job, and fg continues both, as in any shell.
func TestTerminal_WhenCtrlZAndFgAreTyped_TheJobStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		skip(t, "bash")
	}
	for name, silenced := range map[string]bool{"soon": false, "after the guard's limit": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// In a subshell, as a shell in vfork is never seen as stopped.
			p := script(`echo up; until [ -e go ]; do (sleep 0.02); done; echo went on; exit 7`)
			if silenced {
				// The key passes another session by; only the guard stops that.
				p = script(`setsid sh -c 'echo up; exec sleep 300' & until [ -e go ]; do (sleep 0.02); done; echo went on; kill $!; exit 7`)
				p.Options.Silence = 300e6
			}
			tty := onTerminal(t, p)
			tty.Args = []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}
			driver := tty.Path
			tty.Path, _ = exec.LookPath("bash")
			tty.begin()
			tty.types(driver + "\n")
			tty.hears("started")
			tty.says("up\r\n")
			tty.types(ctrlZ)
			tty.says("Stopped")
			await(t, "all of the job is stopped", func() bool { return tty.allAre(true) })
			tty.types("fg; echo status $?\n")
			if silenced {
				tty.hears("halted")
				tty.asks("continue")
			}
			if err := os.WriteFile(tty.Dir+"/go", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			tty.says("went on")
			tty.says("status 7")
			tty.types("exit\n")
			tty.ends(0)
		})
	}
}
