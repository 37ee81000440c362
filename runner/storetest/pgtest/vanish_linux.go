package pgtest

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Vanish is Silence as the server sees it when packets are lost: what it sends
// is not acknowledged either, and its keepalives have no answer. It is for
// good.
func (p *Proxy) Vanish() error {
	p.Silence(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.RemoteAddr().String() != p.target {
			continue
		}
		if err := dropAll(c); err != nil {
			return fmt.Errorf("dropping what %s sends: %w", p.target, err)
		}
	}
	return nil
}

// dropAll attaches a packet filter that lets nothing in (socket(7),
// SO_ATTACH_FILTER): the kernel drops each packet before TCP sees it.
func dropAll(c net.Conn) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
	})
	if err != nil {
		return err
	}
	return set
}
