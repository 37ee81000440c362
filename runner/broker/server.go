package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// Options are what a Server is made of.
type Options struct {
	// Folders are candidates for the place of the socket's folder, best first;
	// empty ones are passed over.
	Folders []string
	// Leave is told the socket and its folder before they are made, so that
	// they can be removed even if this process is killed; nil: nobody is told.
	Leave func(paths ...string)
	// SendGate bounds and paces the job's sends; nil: none are served.
	SendGate runner.SendGate
	// Log gets what only a developer wants to know; nil: nobody does.
	Log *slog.Logger
}

// closeGrace bounds how long Close waits for what is being claimed: a claim
// gives up after ClaimPatience, and then has its answer to bring. answerGrace
// is how long it then waits for answers that nobody reads.
const (
	closeGrace  = runner.ClaimPatience + 2*time.Second
	answerGrace = time.Second
)

// Server is the broker of one run: a runner.GatedBroker. Requests wait until
// the first Serve.
type Server struct {
	folder string
	http   *http.Server
	gate   *gate
	slots  *slots
	done   chan struct{} // closed once the listener is
	grace  time.Duration // closeGrace

	// closing ends the waiting; working ends the requests at work, later.
	closing, working         context.Context
	beginClosing, endWorking context.CancelCauseFunc

	mu       sync.Mutex // guards closed against requests that begin
	closed   bool
	requests sync.WaitGroup
}

var _ runner.GatedBroker = (*Server)(nil)

// Listen makes a folder of mode 0700 with a socket of mode 0600 in it and
// answers requests there until Close.
func Listen(o Options) (*Server, error) {
	folder, l, err := openFolder(o.Folders, o.Leave)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{folder: folder, gate: newGate(), slots: newSlots(o.SendGate), done: make(chan struct{}), grace: closeGrace}
	s.closing, s.beginClosing = context.WithCancelCause(context.Background())
	s.working, s.endWorking = context.WithCancelCause(context.Background())
	// No time limits: who connects is this user, and a stopped job is no fault.
	s.http = &http.Server{Handler: http.HandlerFunc(s.handle), ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ownListener{l}); !errors.Is(err, http.ErrServerClosed) && s.closing.Err() == nil {
			o.Log.Error("the broker's socket is closed", "error", err)
		}
	}()
	return s, nil
}

// ownListener closes the connections of other users.
type ownListener struct{ *net.UnixListener }

func (l ownListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if trusted(c) {
			return c, nil
		}
		c.Close()
	}
}

// Path implements runner.Broker.
func (s *Server) Path() string { return filepath.Join(s.folder, socketName) }

// Serve implements runner.Broker. c may also be a runner.Renewer, a
// runner.Turner, and have runner.ClaimReader's Lookup.
func (s *Server) Serve(run runner.Run, c runner.Claimer) { s.gate.serve(run, c) }

// Hold implements runner.Gate.
func (s *Server) Hold() { s.gate.hold() }

// Refuse implements runner.Gate. Nothing opens the gate again after it.
func (s *Server) Refuse(err error) { s.gate.refuse(err) }

// Close removes the socket and its folder, fails the requests that wait, and
// waits for those at work, for a few seconds at the most before it ends them.
func (s *Server) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	removeErr := os.RemoveAll(s.folder)
	s.gate.refuse(errGone)
	s.beginClosing(errGone)
	grace := time.AfterFunc(s.grace, func() { s.endWorking(errGone) })
	defer grace.Stop()
	cut := time.AfterFunc(s.grace+answerGrace, func() { _ = s.http.Close() })
	defer cut.Stop()
	s.requests.Wait()
	s.endWorking(errGone)
	closeErr := s.http.Close()
	<-s.done
	return errors.Join(removeErr, closeErr)
}

// enter counts a request in, or reports that the server is closing.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.requests.Add(1)
	return true
}

// waiting is r's context, ended by Close too.
func (s *Server) waiting(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(s.closing, func() { cancel(errGone) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
