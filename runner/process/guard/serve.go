package guard

import (
	"sync"
	"syscall"
)

// server is the guard at work. The goroutine of serve handles oncectl's
// messages, that of wait the job's ends and stops.
type server struct {
	conn *Conn
	lock int // the lock's descriptor, or -1
	tree *Tree
	left []string      // to be removed if oncectl is killed
	gone chan struct{} // closed when no process of the job is left

	// Only serve's goroutine uses these.
	limit int64 // nanoseconds of silence allowed; 0: any
	until int64 // when the lock is no longer surely held; 0: it has no lease

	mu     sync.Mutex
	pid    int  // the command, 0 before it is started
	group  int  // the command's process group
	own    bool // the group is the command's own, not oncectl's
	ended  bool
	paused bool
}

// killPatience is how long a Kill waits for processes that do not die (in an
// uninterruptible system call, or another user's) before it says so.
const killPatience = 10e9 // nanoseconds

func (s *server) serve() {
	for {
		s.watch()
		m, err := s.conn.Recv()
		switch {
		case err == syscall.EAGAIN:
			s.halt()
		case err != nil:
			// oncectl is gone. Its lock stays ours until the job is dead.
			s.kill(0)
			s.cleanUp()
			return
		case m.Type == Bye:
			s.resume()
			return
		default:
			s.handle(m)
		}
	}
}

// cleanUp removes what a killed oncectl could not.
func (s *server) cleanUp() {
	for _, path := range s.left {
		if syscall.Unlink(path) != nil {
			_ = syscall.Rmdir(path) // what is not empty stays
		}
	}
}

func (s *server) handle(m Msg) {
	switch m.Type {
	case Ping:
		s.hear(m)
	case Limit:
		s.limit = int64(m.N) * 1e6
	case Leave:
		if paths, _, ok := takeStrings(m.Body); ok {
			s.left = append(s.left, paths...)
		}
	case Start:
		if s.expired() {
			s.answer(LeaseOver)
			return
		}
		pid, err := s.start(m)
		if err == 0 {
			_ = s.conn.Send(Msg{Type: Started, N: int32(pid)})
			// After the answer, so that Exited never comes before it.
			go s.wait()
			return
		}
		s.answer(err)
	case Signal:
		s.answer(s.signal(syscall.Signal(m.N)))
	case Pause:
		s.answer(s.pause())
	case Continue:
		if s.expired() {
			s.answer(LeaseOver)
			return
		}
		s.answer(s.resume())
	case Kill:
		s.answer(s.kill(killPatience))
	case Hold:
		s.hold(m.FDs)
		s.answer(0)
	default:
		s.answer(syscall.EBADMSG)
	}
}

// answer answers a request. That oncectl is gone is seen by Recv.
func (s *server) answer(err syscall.Errno) {
	_ = s.conn.Send(Msg{Type: Answer, N: int32(err)})
}

// hold keeps another descriptor of the lock in place of the one it has: the
// new one is held before the old one goes.
func (s *server) hold(fds []int) {
	old := s.lock
	s.lock = -1
	if len(fds) > 0 {
		s.lock = fds[0]
	}
	if old >= 0 {
		_ = syscall.Close(old)
	}
}

// halt pauses the job because oncectl has been silent for too long.
func (s *server) halt() {
	s.mu.Lock()
	idle := s.pid == 0 || s.paused
	s.mu.Unlock()
	if idle {
		return
	}
	s.pause()
	_ = s.conn.Send(Msg{Type: Halted})
}

func (s *server) pause() syscall.Errno {
	s.mu.Lock()
	s.paused = s.pid != 0
	started := s.paused
	s.mu.Unlock()
	if !started {
		return 0
	}
	return s.tree.Stop(s.ownGroup())
}

// resume undoes pause. The flag goes first: from then on a process that
// continues is no longer stopped again by wait.
func (s *server) resume() syscall.Errno {
	s.mu.Lock()
	was := s.paused
	s.paused = false
	s.mu.Unlock()
	if !was {
		return 0
	}
	return s.tree.Continue()
}

// signal passes sig on: to the command's group what ends jobs, as a terminal
// would, and to the command alone what has a meaning of its own for it, since
// the default of USR1 would kill its children. Once the command has ended there
// is nobody left to tell.
func (s *server) signal(sig syscall.Signal) syscall.Errno {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pid == 0 || s.ended:
		return 0
	case sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 || sig == syscall.SIGWINCH:
		return send(s.pid, sig)
	case s.own:
		return send(-s.group, sig)
	}
	return s.tree.SignalGroup(s.group, sig)
}

// kill ends the job: everything is stopped first, so that nothing forks its
// way out, then killed, until no child is left to wait for. patience, in
// nanoseconds, bounds it (EBUSY, or EPERM where processes may not be
// signalled); 0 does not.
func (s *server) kill(patience int64) syscall.Errno {
	s.mu.Lock()
	started := s.pid != 0
	s.paused = started
	s.mu.Unlock()
	if !started {
		return 0
	}
	s.tree.Stop(s.ownGroup())
	begin, pause := now(), int64(100e3)
	for {
		denied := s.tree.Kill(s.ownGroup())
		select {
		case <-s.gone:
			return 0
		default:
		}
		if patience != 0 && now()-begin > patience {
			if denied {
				return syscall.EPERM
			}
			return syscall.EBUSY
		}
		sleep(pause)
		pause = min(2*pause, 50e6)
	}
}

// ownGroup is the command's own group, or 0: where it shares oncectl's, and
// once the command, whose pid names it, has ended, as then the number could
// come to belong to somebody else.
func (s *server) ownGroup() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.own {
		return 0
	}
	return s.group
}
