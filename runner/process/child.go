package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/process/guard"
)

// Child is a command that runs under its guard. It implements runner.Child.
type Child struct {
	pid      int // the guard's
	conn     *guard.Conn
	terminal terminal
	streams  *streams
	lease    func() time.Time // or nil

	request sync.Mutex     // one request at a time
	answers chan guard.Msg // of requests
	gone    chan struct{}  // closed when the guard is
	halted  chan struct{}
	done    chan struct{}
	stop    chan struct{} // ends the pings
	wg      sync.WaitGroup

	mu      sync.Mutex
	exit    runner.Exit
	ended   bool // exit is known
	closing bool // the guard ends because it was told to
}

func newChild(s *Starter, out *streams, lease func() time.Time) *Child {
	c := &Child{
		pid: s.pid, conn: s.conn, terminal: s.terminal, streams: out, lease: lease,
		answers: make(chan guard.Msg), gone: make(chan struct{}), halted: make(chan struct{}, 1),
		done: make(chan struct{}), stop: make(chan struct{}),
	}
	c.wg.Go(c.receive)
	c.wg.Go(func() { c.ping(s.options.Silence / 6) })
	return c
}

// receive takes what the guard says until it is gone.
func (c *Child) receive() {
	defer close(c.gone)
	for {
		m, err := c.conn.Recv()
		switch {
		case err == syscall.EAGAIN:
		case err != nil:
			c.guardGone()
			return
		case m.Type == guard.Exited:
			c.end(exitOf(syscall.WaitStatus(m.N)))
		case m.Type == guard.Halted:
			select {
			case c.halted <- struct{}{}:
			default:
			}
		case m.Type == guard.Answer:
			c.answers <- m
		}
	}
}

// exitOf reads a wait status.
func exitOf(ws syscall.WaitStatus) runner.Exit {
	if ws.Signaled() {
		return runner.Exit{Signal: ws.Signal()}
	}
	return runner.Exit{Code: ws.ExitStatus()}
}

// end notes how the command ended, and passes on what it had written.
func (c *Child) end(e runner.Exit) {
	c.mu.Lock()
	first := !c.ended
	if first {
		c.ended, c.exit = true, e
	}
	c.mu.Unlock()
	if first {
		c.wg.Go(func() {
			c.streams.drain()
			close(c.done)
		})
	}
}

// guardGone follows the guard's end. If nobody told it to end, its job has
// fallen to this process, the next subreaper, and must not go on unguarded.
func (c *Child) guardGone() {
	c.mu.Lock()
	expected := c.closing
	c.mu.Unlock()
	if expected {
		return
	}
	killOrphans()
	c.end(runner.Exit{Signal: syscall.SIGKILL})
}

// killOrphans kills and reaps every child of this process and their
// descendants.
func killOrphans() {
	tree := guard.NewTree(os.Getpid())
	tree.Stop(0)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		tree.Kill(0)
		if !reapEnded() {
			return
		}
	}
}

// ping tells the guard that this process is alive.
func (c *Child) ping(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-c.gone:
			return
		case <-t.C:
			_ = c.conn.Send(leasePing(c.lease)) // receive sees its end
		}
	}
}

// leasePing tells the guard the lease. The clock is read before the time that is
// left, so that a pause in between can only make the lease end earlier.
func leasePing(lease func() time.Time) guard.Msg {
	m := guard.Msg{Type: guard.Ping}
	if lease == nil {
		return m
	}
	until, now := lease(), guard.Now()
	if until.IsZero() {
		m.Body = guard.EncodeLease(0)
	} else {
		m.Body = guard.EncodeLease(now + int64(time.Until(until)))
	}
	return m
}

// ask sends a request and waits for its answer. A guard that is gone has taken
// its job along, or is about to have it killed.
func (c *Child) ask(m guard.Msg) error {
	c.request.Lock()
	defer c.request.Unlock()
	switch err := c.conn.Send(m); err {
	case nil:
	case syscall.EPIPE, syscall.ECONNRESET:
		<-c.gone
		return nil
	default: // a descriptor that cannot be sent, say
		return err
	}
	select {
	case a := <-c.answers:
		if a.N != 0 {
			return syscall.Errno(a.N)
		}
		return nil
	case <-c.gone:
		return nil
	}
}

// Done implements runner.Process.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit implements runner.Process.
func (c *Child) Exit() runner.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}

// Signal implements runner.Process. What a terminal has given to the whole
// group already is not passed on once more.
func (c *Child) Signal(sig os.Signal) error {
	n, ok := sig.(syscall.Signal)
	if !ok || !c.terminal.forwards(sig) {
		return nil
	}
	return noProcess(c.ask(guard.Msg{Type: guard.Signal, N: int32(n)}))
}

// noProcess takes the end of a process for success: there is nobody to signal.
func noProcess(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Pause implements runner.Pausable.
func (c *Child) Pause() error { return wrap("pausing the job", c.ask(guard.Msg{Type: guard.Pause})) }

// Continue implements runner.Pausable.
func (c *Child) Continue() error {
	_ = c.conn.Send(leasePing(c.lease)) // ask sees its end
	return wrap("continuing the job", c.ask(guard.Msg{Type: guard.Continue}))
}

// Kill implements runner.Pausable.
func (c *Child) Kill() error {
	err := wrap("killing the job", c.ask(guard.Msg{Type: guard.Kill}))
	c.wg.Go(c.giveUp)
	return err
}

// lastOutput is how long a reader that takes nothing may hold up the end of a
// job that was killed.
const lastOutput = 5 * time.Second

// giveUp bounds how long the output of a killed job is passed on.
func (c *Child) giveUp() {
	t := time.NewTimer(lastOutput)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		c.streams.abandon()
	}
}

func wrap(what string, err error) error {
	switch {
	case noProcess(err) == nil:
		return nil
	case errors.Is(err, guard.LeaseOver):
		err = runner.ErrLockLost
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Halted implements runner.Guarded.
func (c *Child) Halted() <-chan struct{} { return c.halted }

// Hold implements runner.Guarded.
func (c *Child) Hold(f *os.File) error {
	defer f.Close()
	return wrap("handing the lock to the guard", c.ask(guard.Msg{Type: guard.Hold, FDs: []int{number(f)}}))
}

// Tail implements runner.Output.
func (c *Child) Tail() []byte { return c.streams.tail }

// Last implements runner.Output.
func (c *Child) Last() []byte { return c.streams.output }

// Close implements runner.Output.
func (c *Child) Close(failed bool) error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	close(c.stop)
	_ = c.conn.Send(guard.Msg{Type: guard.Bye}) // it may be gone already
	<-c.gone
	waitFor(c.pid)
	c.wg.Wait()
	c.conn.Close()
	c.terminal.close()
	var err error
	if failed {
		err = c.streams.show()
	}
	c.streams.end()
	return err
}
