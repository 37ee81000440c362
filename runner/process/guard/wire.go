package guard

import (
	"sync"
	"syscall"
)

// Type says what a message is.
type Type byte

// Requests, each answered in order by one Answer unless noted.
const (
	Start    Type = iota + 1 // Spec; answered by Started, or Answer (LeaseOver)
	Signal                   // N: the signal
	Pause                    //
	Continue                 // answered with LeaseOver once the lease has run out
	Kill                     //
	Hold                     // FDs: the lock's descriptor, or none
	Limit                    // N: milliseconds of silence allowed; not answered
	Ping                     // EncodeLease, or nothing: the lease stays; not answered
	Bye                      // not answered: the guard ends
	Leave                    // EncodePaths: to be removed if oncectl is killed; not answered
)

// Answers and events.
const (
	Started Type = iota + 100 // N: the command's pid
	Answer                    // N: 0 or an errno
	Exited                    // N: the command's wait status
	Halted                    // the guard has paused the job on its own
	Stopped                   // N: the signal that stopped the command
)

// Msg is a message between oncectl and its guard.
type Msg struct {
	Type Type
	N    int32
	Body []byte
	FDs  []int // at most maxFDs; the receiver owns its copies
}

const (
	headerLen = 10 // type, number of descriptors, N, length of the body
	maxFDs    = 4
	// maxBody bounds arguments and environment; the kernel's own bound for
	// both together is 6 MiB (execve(2)).
	maxBody = 16 << 20
)

// Conn sends and receives messages on a stream socket. One goroutine may
// receive while any number send.
type Conn struct {
	fd  int
	mu  sync.Mutex // serialises senders
	buf []byte     // received, not yet a whole message
	fds []int      // received, not yet given out
}

// NewConn takes over the socket fd.
func NewConn(fd int) *Conn { return &Conn{fd: fd} }

// Send sends m. Its descriptors stay the sender's.
func (c *Conn) Send(m Msg) error {
	p := make([]byte, headerLen, headerLen+len(m.Body))
	p[0], p[1] = byte(m.Type), byte(len(m.FDs))
	put32(p[2:], uint32(m.N))
	put32(p[6:], uint32(len(m.Body)))
	p = append(p, m.Body...)
	var oob []byte
	if len(m.FDs) > 0 {
		oob = syscall.UnixRights(m.FDs...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		n, err := syscall.SendmsgN(c.fd, p, oob, nil, sendFlags)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p, oob = p[n:], nil
	}
	return nil
}

// Recv waits for the next message. It fails with EAGAIN when the socket's
// receive time-out passes (call it again), and with EPIPE at the end.
func (c *Conn) Recv() (Msg, error) {
	for {
		if m, ok, err := c.next(); ok || err != nil {
			return m, err
		}
		if err := c.fill(); err != nil {
			return Msg{}, err
		}
	}
}

// next takes a whole message from what was received.
func (c *Conn) next() (Msg, bool, error) {
	if len(c.buf) < headerLen {
		return Msg{}, false, nil
	}
	nfds, size32 := int(c.buf[1]), get32(c.buf[6:])
	if size32 > maxBody || nfds > maxFDs {
		return Msg{}, false, syscall.EBADMSG
	}
	size := int(size32)
	if len(c.buf) < headerLen+size {
		return Msg{}, false, nil
	}
	// Descriptors arrive with the first byte of their message or earlier.
	if len(c.fds) < nfds {
		return Msg{}, false, syscall.EBADMSG
	}
	m := Msg{
		Type: Type(c.buf[0]),
		N:    int32(get32(c.buf[2:])),
		Body: append([]byte(nil), c.buf[headerLen:headerLen+size]...),
		FDs:  append([]int(nil), c.fds[:nfds]...),
	}
	c.buf = append(c.buf[:0], c.buf[headerLen+size:]...)
	c.fds = c.fds[nfds:]
	return m, true, nil
}

func (c *Conn) fill() error {
	p := make([]byte, 4096)
	if len(c.buf) > 0 {
		p = make([]byte, 64<<10) // a Start with its environment
	}
	oob := make([]byte, syscall.CmsgSpace(maxFDs*4))
	n, oobn, _, _, err := syscall.Recvmsg(c.fd, p, oob, recvFlags)
	switch {
	case err == syscall.EINTR:
		return nil
	case err != nil:
		return err
	case n == 0:
		return syscall.EPIPE
	}
	c.buf = append(c.buf, p[:n]...)
	return c.takeFDs(oob[:oobn])
}

func (c *Conn) takeFDs(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	cmsgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range cmsgs {
		fds, err := syscall.ParseUnixRights(&cmsgs[i])
		if err != nil {
			return err
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd) // where recvFlags cannot ask for it
		}
		c.fds = append(c.fds, fds...)
	}
	return nil
}

// Shutdown ends the conversation: both sides' Recv returns.
func (c *Conn) Shutdown() { _ = syscall.Shutdown(c.fd, syscall.SHUT_RDWR) }

// Close closes the socket. No Recv may be running.
func (c *Conn) Close() { _ = syscall.Close(c.fd) }

func put32(p []byte, v uint32) {
	p[0], p[1], p[2], p[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

func get32(p []byte) uint32 {
	return uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 | uint32(p[3])<<24
}
