package process

import (
	"io"

	"golang.org/x/sys/unix"
)

// relay passes on what the job writes into a pipe, at once and byte for byte,
// and lets keep have it first. It reads no faster than the receiver takes it.
//
// When the receiver is gone (EPIPE), the pipe's reading end is closed, so that
// the job meets what it would have met without oncectl. Bytes that cannot be
// written for another reason (a full disk) are lost, and the job goes on.
type relay struct {
	src  int // the reading end
	dst  int // -1: nobody
	keep io.Writer
	step int // how much may be written at once
	wake [2]int
	done chan struct{} // closed when the goroutine has ended

	draining bool
}

// drainLimit bounds what is passed on after the command has ended: the most
// that a pipe can hold, for anybody but root (fs.pipe-max-size, pipe(7)). A
// background process that goes on writing must not keep oncectl.
const drainLimit = 1 << 20

const (
	wakeDrain   = 'd'
	wakeAbandon = 'a'
)

// newRelay makes the pipe and starts passing on. The caller hands w, the
// writing end, to the command and closes its own copy. Keep must never fail.
func newRelay(dst int, keep io.Writer) (r *relay, w int, err error) {
	src, w, err := pipe()
	if err != nil {
		return nil, -1, err
	}
	r = &relay{src: src, dst: dst, keep: keep, done: make(chan struct{})}
	if r.wake[0], r.wake[1], err = pipe(); err != nil {
		_, _ = unix.Close(src), unix.Close(w)
		return nil, -1, err
	}
	r.step = unix.PathMax // PIPE_BUF: what a pipe that is writable takes without blocking
	if kind(dst) == unix.S_IFREG {
		r.step = drainLimit
	}
	_ = unix.SetNonblock(src, true) // only this end; the command's blocks
	go r.run()
	return r, w, nil
}

// drain asks to pass on what is in the pipe now and then to end.
func (r *relay) drain() { r.tell(wakeDrain) }

// abandon asks to end at once, even while the receiver takes nothing.
func (r *relay) abandon() { r.tell(wakeAbandon) }

func (r *relay) tell(what byte) { _, _ = unix.Write(r.wake[1], []byte{what}) }

// close waits for the goroutine and gives back the descriptors. Call drain or
// abandon before.
func (r *relay) close() {
	<-r.done
	_, _ = unix.Close(r.wake[0]), unix.Close(r.wake[1])
}

func (r *relay) run() {
	defer close(r.done)
	defer unix.Close(r.src)
	buf := make([]byte, 64<<10)
	left := drainLimit
	for left > 0 {
		if !r.draining && !r.await(r.src, unix.POLLIN) {
			return
		}
		n, err := unix.Read(r.src, buf)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if r.draining {
				return
			}
		case err != nil || n == 0:
			return
		default:
			if r.draining {
				left -= n
			}
			if !r.pass(buf[:n]) {
				return
			}
		}
	}
}

// await waits until fd is ready or it is time to drain. It returns false when
// the relay is abandoned.
func (r *relay) await(fd int, events int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(r.wake[0]), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return false
		}
		if fds[1].Revents != 0 {
			var what [1]byte
			_, _ = unix.Read(r.wake[0], what[:])
			if what[0] == wakeAbandon {
				return false
			}
			r.draining = true
			if fd == r.src {
				return true
			}
		}
		if fds[0].Revents != 0 {
			return true
		}
	}
}

// pass passes p on. It returns false when there is no use in going on.
func (r *relay) pass(p []byte) bool {
	_, _ = r.keep.Write(p)
	for r.dst >= 0 && len(p) > 0 {
		if !r.await(r.dst, unix.POLLOUT) {
			return false
		}
		n, err := unix.Write(r.dst, p[:min(len(p), r.step)])
		if n > 0 {
			p = p[n:]
		}
		switch err {
		case nil, unix.EINTR, unix.EAGAIN:
		case unix.EPIPE:
			return false
		default:
			return true
		}
	}
	return true
}
