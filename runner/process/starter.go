package process

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/process/guard"
)

// Options say how a job is run.
type Options struct {
	// Name is what ps shows of the guard, beside "oncectl-guard": the lock.
	Name string
	// Silence is how long oncectl may be silent before the guard pauses the
	// job; 0 is runner.LeaseDeadline.
	Silence time.Duration
	// TempDir is where output that is kept back goes; empty is /tmp.
	TempDir string
	// Closed tells which of the first three descriptors the command is to
	// start without. Go's runtime opens /dev/null for those that were closed
	// when oncectl was started, which cannot be told from a /dev/null that
	// somebody opened on purpose; so nothing is guessed here.
	Closed [3]bool
}

// Starter starts one command. It implements runner.Starter.
type Starter struct {
	options  Options
	terminal terminal
	ready    chan struct{} // closed when the guard was started, or was not
	pid      int
	conn     *guard.Conn
	err      error
	once     sync.Once // of the guard's use: Start or Abandon
}

// GuardMain runs a guard that could not be run earlier. main calls it first of
// all; in any other process it returns at once.
func GuardMain() {
	if fd, option, ok := guard.Marked(); ok && option == guard.LateQuit {
		signal.Ignore(syscall.SIGQUIT)
		guard.Run(fd)
	}
}

// Prepare starts the guard, which takes a few milliseconds, while its caller
// does something else. Call Start or Abandon.
func Prepare(o Options) *Starter {
	if o.Silence == 0 {
		o.Silence = runner.LeaseDeadline
	}
	reap()
	s := &Starter{options: o, ready: make(chan struct{})}
	go func() {
		defer close(s.ready)
		s.pid, s.conn, s.err = startGuard(o.Name)
		s.terminal = openTerminal()
	}()
	return s
}

// startGuard starts this binary as a guard. Its socket keeps its number, so
// that no descriptor which the command is to inherit has to make way.
func startGuard(name string) (pid int, conn *guard.Conn, err error) {
	guard.Subreap()
	path, err := self()
	if err != nil {
		return 0, nil, fmt.Errorf("finding this program: %w", err)
	}
	ours, theirs, err := socketpair()
	if err != nil {
		return 0, nil, fmt.Errorf("making the guard's socket: %w", err)
	}
	defer unix.Close(theirs)
	if _, err := unix.FcntlInt(uintptr(theirs), unix.F_SETFD, 0); err != nil {
		unix.Close(ours)
		return 0, nil, fmt.Errorf("making the guard's socket: %w", err)
	}
	mark := guard.Env + "=" + strconv.Itoa(theirs)
	if quitIgnored() {
		mark += "," + guard.LateQuit
	}
	argv := []string{"oncectl-guard"}
	if name != "" {
		argv = append(argv, name)
	}
	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env:   []string{mark},
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // Ctrl-C and Ctrl-Z pass it by
	})
	if err != nil {
		unix.Close(ours)
		return 0, nil, fmt.Errorf("starting the guard: %w", err)
	}
	return pid, guard.NewConn(ours), nil
}

// SharesTerminal reports whether the command runs in oncectl's process group on
// a terminal, whose keys reach both.
func (s *Starter) SharesTerminal() bool {
	<-s.ready
	return s.terminal.tty != nil
}

// Abandon ends a guard that was not needed. After Start it does nothing.
func (s *Starter) Abandon() {
	s.once.Do(func() {
		<-s.ready
		s.terminal.close()
		if s.err == nil {
			s.conn.Close()
			waitFor(s.pid)
		}
	})
}

// Leave names files, and then their folders, that the guard removes if this
// process is killed. They need not be there yet.
func (s *Starter) Leave(paths ...string) {
	<-s.ready
	if s.err == nil {
		_ = s.conn.Send(guard.Msg{Type: guard.Leave, Body: guard.EncodePaths(paths)}) // a guard that is gone is noticed by Start
	}
}

// waitFor reaps one child, or returns when it has been reaped.
func waitFor(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// errUsed says that a Starter was used twice.
var errUsed = errors.New("this starter has started its command")

// Start implements runner.Starter.
func (s *Starter) Start(_ context.Context, c runner.Command) (runner.Child, error) {
	if c.LockFile != nil {
		defer c.LockFile.Close()
	}
	child, err := (*Child)(nil), errUsed
	s.once.Do(func() {
		<-s.ready
		if err = s.err; err == nil {
			child, err = s.start(c)
		}
	})
	if err != nil {
		return nil, err
	}
	return child, nil
}

// start has the guard start the command; where that fails the guard ends.
func (s *Starter) start(c runner.Command) (*Child, error) {
	child, err := s.tryStart(c)
	if err != nil {
		s.conn.Close()
		waitFor(s.pid)
		s.terminal.close()
	}
	return child, err
}

func (s *Starter) tryStart(c runner.Command) (*Child, error) {
	if len(c.Argv) == 0 {
		return nil, fmt.Errorf("%w: there is none", runner.ErrNotFound)
	}
	path, err := lookup(c.Argv[0], c.Env)
	if err != nil {
		return nil, err
	}
	out, err := openStreams(s.real(), c.QuietOK, c.KeepOutput, s.options.TempDir)
	if err != nil {
		return nil, err
	}
	spec := guard.Spec{
		Path: path, Argv: c.Argv, Env: c.Env, Group: guard.OwnGroup, Closed: s.options.Closed,
		HasLock: c.LockFile != nil, HasOut: out.out >= 0, HasErr: out.err >= 0,
	}
	if s.terminal.tty != nil {
		spec.Group = int32(s.terminal.group)
	}
	var fds []int
	for _, fd := range []int{number(c.LockFile), out.out, out.err} {
		if fd >= 0 {
			fds = append(fds, fd)
		}
	}
	errno, err := s.order(spec, fds, c.Lease)
	if errno == syscall.ENOEXEC {
		// As execvp(3) does for a script without #!.
		spec.Path, spec.Argv = shell, append([]string{c.Argv[0], path}, c.Argv[1:]...)
		errno, err = s.order(spec, fds, c.Lease)
	}
	out.closeCommandEnds()
	if err == nil && errno != 0 {
		err = startError(path, errno)
	}
	if err != nil {
		out.end()
		return nil, err
	}
	return newChild(s, out, c.Lease), nil
}

// real is oncectl's standard streams, as far as the command has them.
func (s *Starter) real() [3]int {
	fds := [3]int{0, 1, 2}
	for i, closed := range s.options.Closed {
		if closed {
			fds[i] = -1
		}
	}
	return fds
}

// order asks the guard to start the command.
func (s *Starter) order(spec guard.Spec, fds []int, lease func() time.Time) (syscall.Errno, error) {
	limit := guard.Msg{Type: guard.Limit, N: int32(s.options.Silence.Milliseconds())}
	err := s.conn.Send(limit)
	if err == nil {
		err = s.conn.Send(leasePing(lease))
	}
	if err == nil {
		err = s.conn.Send(guard.Msg{Type: guard.Start, Body: spec.Encode(), FDs: fds})
	}
	var m guard.Msg
	if err == nil {
		m, err = s.conn.Recv()
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("talking to the guard: %w", err)
	case m.Type == guard.Answer:
		return syscall.Errno(m.N), nil
	}
	return 0, nil
}
