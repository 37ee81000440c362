package guard

import "syscall"

// start starts the command and returns its pid.
func (s *server) start(m Msg) (int, syscall.Errno) {
	spec, err := DecodeSpec(m.Body)
	if err != nil {
		return 0, syscall.EBADMSG
	}
	stdio := [3]int{0, 1, 2}
	fds := m.FDs
	take := func(has bool, to *int) {
		if has && len(fds) > 0 {
			*to, fds = fds[0], fds[1:]
		}
	}
	lock := -1
	take(spec.HasLock, &lock)
	take(spec.HasOut, &stdio[1])
	take(spec.HasErr, &stdio[2])
	pid, errno := spawn(spec, stdio)
	for _, fd := range stdio {
		if fd > 2 {
			_ = syscall.Close(fd)
		}
	}
	if errno != 0 {
		if lock >= 0 {
			_ = syscall.Close(lock)
		}
		return 0, errno
	}
	if lock >= 0 {
		s.hold([]int{lock})
	}
	s.mu.Lock()
	s.pid, s.group, s.own = pid, int(spec.Group), spec.Group == OwnGroup
	if s.own {
		s.group = pid
	}
	s.mu.Unlock()
	forgetStdio()
	return pid, 0
}

// spawn forks and executes. syscall.ForkExec gives the command the signal
// dispositions and the mask that oncectl was started with, and the limit of
// open files from before Go raised it.
func spawn(spec Spec, stdio [3]int) (int, syscall.Errno) {
	files := make([]uintptr, 3)
	for i, fd := range stdio {
		files[i] = uintptr(fd)
		if spec.Closed[i] {
			files[i] = ^uintptr(0)
		}
	}
	pid, err := syscall.ForkExec(spec.Path, spec.Argv, &syscall.ProcAttr{
		Env:   spec.Env,
		Files: files,
		Sys:   childAttr(int(spec.Group)),
	})
	if err == nil {
		return pid, 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return 0, errno
	}
	return 0, syscall.EINVAL
}

// forgetStdio lets go of the job's standard streams, so that the guard keeps
// no pipe open that everybody else has closed.
func forgetStdio() {
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		if null != fd {
			_ = dup2(null, fd)
		}
	}
	if null > 2 {
		_ = syscall.Close(null)
	}
}

// wait is the only place that waits for children: the command, and as the
// guard is a subreaper, every orphan of the job. It ends when none is left.
func (s *server) wait() {
	defer close(s.gone)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, waitFlags, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return
		case ws.Continued():
			s.continued()
		case ws.Stopped():
			s.stopped(pid, ws)
		default:
			s.exited(pid, ws)
		}
	}
}

func (s *server) exited(pid int, ws syscall.WaitStatus) {
	s.mu.Lock()
	command := pid == s.pid && !s.ended
	if command {
		s.ended = true
	}
	s.mu.Unlock()
	if command {
		_ = s.conn.Send(Msg{Type: Exited, N: int32(ws)})
	}
}

// continued stops the job again if somebody else has continued it while it is
// to be paused: a shell's fg, after Ctrl-Z has also made oncectl silent.
func (s *server) continued() {
	s.mu.Lock()
	paused := s.paused
	s.mu.Unlock()
	if paused {
		s.tree.Stop(s.ownGroup())
	}
}

func (s *server) stopped(pid int, ws syscall.WaitStatus) {
	s.mu.Lock()
	tell := pid == s.pid && !s.paused
	s.mu.Unlock()
	if tell {
		_ = s.conn.Send(Msg{Type: Stopped, N: int32(ws.StopSignal())})
	}
}
