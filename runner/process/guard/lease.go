package guard

import "syscall"

// The guard acts on its own in two cases. If oncectl has been silent for the
// limit, nobody knows whether the lock is still there; and once the lease that
// oncectl told it has run out, somebody else may have the lock. The lease is a
// point of the machine's monotonic clock, not a duration: an order that was
// held up on its way (a stopped process) must not be obeyed late.

// Now is that clock, in nanoseconds: the same for all processes of a machine.
func Now() int64 { return now() }

// LeaseOver answers an order that came after the lease. Neither fork, execve nor
// kill fail with this number, and every system has it, as it has not ETIME.
const LeaseOver = syscall.ECANCELED

// leaseBytes is the length of a Ping's body.
const leaseBytes = 8

// EncodeLease is the body of a Ping: when the lock is no longer surely held; 0
// for a lock without a lease.
func EncodeLease(until int64) []byte {
	p := make([]byte, leaseBytes)
	put32(p, uint32(until))
	put32(p[4:], uint32(uint64(until)>>32))
	return p
}

// hear notes the lease that a Ping brought.
func (s *server) hear(m Msg) {
	if len(m.Body) == leaseBytes {
		s.until = int64(uint64(get32(m.Body)) | uint64(get32(m.Body[4:]))<<32)
	}
}

// expired reports whether the lease has run out.
func (s *server) expired() bool { return s.until != 0 && now() >= s.until }

// watch waits for the next message no longer than the limit of silence or the
// lease allows. A lease may have run out while the last message was handled, an
// order to start above all; what is paused has nothing to fear from that.
func (s *server) watch() {
	if s.expired() {
		s.halt()
	}
	wait := s.limit
	if left := s.until - now(); s.until != 0 && left > 0 && (wait == 0 || left < wait) {
		wait = left
	}
	if wait > 0 {
		setReceiveTimeout(s.conn.fd, wait)
	}
}
