package process

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner/process/guard"
)

// Signals subscribes to what a job's runner has to know of: TERM, INT, HUP,
// QUIT, USR1, USR2 and WINCH, but not those that were ignored when oncectl was
// started (nohup; INT and QUIT of a shell's background job), which stay
// ignored for the command, too. Call stop when done; afterwards such a signal
// ends oncectl, and the guard then its job.
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16) // a burst while the job is being paused
	for _, sig := range []os.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	} {
		switch {
		case sig == syscall.SIGQUIT && quitIgnored():
			signal.Ignore(sig)
		case !signal.Ignored(sig):
			signal.Notify(c, sig)
		}
	}
	return c, func() { signal.Stop(c) }
}

// quitIgnored says whether oncectl was started with SIGQUIT ignored. Go's
// runtime overwrites that before any of our code runs; only for INT and HUP it
// remembers. A shell without job control ignores INT and QUIT together (POSIX,
// "Signals and Error Handling"), so the one tells of the other.
func quitIgnored() bool { return signal.Ignored(syscall.SIGINT) }

// terminal is oncectl's controlling terminal.
type terminal struct {
	tty   *os.File // nil for none
	group int      // oncectl's own process group
}

func openTerminal() terminal {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return terminal{}
	}
	t := terminal{tty: tty, group: unix.Getpgrp()}
	if _, err := t.foreground(); err != nil {
		t.close()
	}
	return t
}

// foreground is the process group that the terminal's keys go to.
func (t *terminal) foreground() (int, error) {
	return foregroundGroup(t.tty)
}

func (t *terminal) close() {
	if t.tty != nil {
		_ = t.tty.Close()
		t.tty = nil
	}
}

// forwards reports whether sig has still to be passed to a job that shares
// the terminal's foreground with oncectl.
func (t *terminal) forwards(sig os.Signal) bool {
	if t.tty == nil {
		return true
	}
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGWINCH:
		// In the background the terminal sends nothing, so somebody did.
		fg, err := t.foreground()
		return err == nil && fg != t.group
	}
	return true
}

// DieOf ends oncectl by a signal that its command died of, so that a shell
// that runs a script on the same terminal ends the script on Ctrl-C, as it
// would without oncectl (bash goes on after a plain status of 130). It returns
// where that does not work, as in PID 1; then exit with 128+n.
func DieOf(sig syscall.Signal) { guard.DieOf(sig) }
