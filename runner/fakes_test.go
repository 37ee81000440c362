package runner

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// world records, in order, what a Runner does to the things around it.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	log     []string
	begun   Begun
	begin   error
	again   error   // what Begin answers once it was asked before
	tries   []error // what each TryLock answers; nil: had; the last repeats
	resume  error
	check   error
	regain  error     // nil: the lost lock was held all along
	lock    *fakeLock // the one held last
	child   *fakeChild
	started chan struct{} // closed when child is there
	signals chan os.Signal
	end     RunEnd
	finish  error // what Finish answers
	gone    bool
	ahead   time.Duration // how far the store's clock is ahead of this host's
}

func newWorld(t *testing.T) *world {
	return &world{t: t, started: make(chan struct{}), signals: make(chan os.Signal, 1), tries: []error{nil}, regain: ErrLockLost}
}

func (w *world) note(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, s)
}

func (w *world) runner() *Runner {
	return &Runner{
		Locks: w, Jobs: w, Signals: w.signals, Host: Host{Name: "here", ID: "boot"}, PID: 1,
		OpenBroker: func() (GatedBroker, error) { w.note("broker open"); return fakeBroker{w}, nil },
		Gone:       func(int) bool { return w.gone },
		Log:        slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

func (w *world) TryLock(context.Context, LockID) (HeldLock, error) {
	w.mu.Lock()
	err := w.tries[0]
	if len(w.tries) > 1 {
		w.tries = w.tries[1:]
	}
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	w.note("lock")
	w.lock = &fakeLock{world: w, lost: make(chan struct{})}
	return w.lock, nil
}

func (w *world) Start(_ context.Context, c Command) (Child, error) {
	w.note("start")
	w.child = &fakeChild{world: w, done: make(chan struct{}), halted: make(chan struct{}, 1)}
	close(w.started)
	return w.child, nil
}

type fakeLock struct {
	*world
	Claimer
	lost chan struct{}
}

func (l *fakeLock) Lost() <-chan struct{}         { return l.lost }
func (l *fakeLock) Check(context.Context) error   { return l.check }
func (l *fakeLock) Release(context.Context) error { l.note("release"); return nil }
func (l *fakeLock) Until() time.Time              { return time.Time{} }
func (l *fakeLock) TakenAt() time.Time            { return time.Now().Add(l.ahead) }
func (l *fakeLock) Descriptor() (*os.File, error) { return nil, nil }

func (l *fakeLock) Regain(context.Context) error {
	if l.regain == nil {
		l.note("regain")
		l.lost = make(chan struct{})
	}
	return l.regain
}

func (l *fakeLock) Begin(_ context.Context, req BeginRequest) (Begun, error) {
	l.note("begin " + req.Key)
	err := l.begin
	l.begin = l.again
	return l.begun, err
}

func (l *fakeLock) Resume(context.Context, Run) error { l.note("resume"); return l.resume }

func (l *fakeLock) Finish(_ context.Context, _ Run, end RunEnd) error {
	l.note("finish " + string(end.Outcome))
	l.end = end
	return l.finish
}

type fakeBroker struct{ *world }

func (b fakeBroker) Path() string       { return "/socket" }
func (b fakeBroker) Serve(Run, Claimer) { b.note("serve") }
func (b fakeBroker) Hold()              { b.note("hold") }
func (b fakeBroker) Refuse(error)       { b.note("refuse") }
func (b fakeBroker) Close() error       { b.note("broker close"); return nil }

// fakeChild dies of SIGKILL only, unless a test ends it.
type fakeChild struct {
	*world
	done   chan struct{}
	halted chan struct{}
	exit   Exit
	over   bool
}

func (c *fakeChild) finish(e Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over, c.exit = true, e
		close(c.done)
	}
}

func (c *fakeChild) Done() <-chan struct{}      { return c.done }
func (c *fakeChild) Exit() Exit                 { return c.exit }
func (c *fakeChild) Signal(sig os.Signal) error { c.note("signal " + sig.String()); return nil }
func (c *fakeChild) Pause() error               { c.note("pause"); return nil }
func (c *fakeChild) Continue() error            { c.note("continue"); return nil }
func (c *fakeChild) Halted() <-chan struct{}    { return c.halted }
func (c *fakeChild) Hold(*os.File) error        { return nil }
func (c *fakeChild) Tail() []byte               { return []byte("the end\x00\xff\n") }
func (c *fakeChild) Last() []byte               { return nil }
func (c *fakeChild) Close(bool) error           { c.note("close"); return nil }

func (c *fakeChild) Kill() error {
	c.note("kill")
	c.finish(Exit{Signal: syscall.SIGKILL})
	return nil
}
