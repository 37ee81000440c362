package process

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// streams is the job's standard output and error: what the command gets, and
// what oncectl keeps of it.
type streams struct {
	real [3]int // oncectl's own three; -1 where the command gets none
	// out and err are the descriptors for the command, -1 for oncectl's own.
	out, err int
	relays   []*relay
	// Kept back until the job fails; nil where it is not. With both in one
	// (kept as stdout and stderr are one file), spoolErr is spoolOut.
	spoolOut, spoolErr *os.File
	ringOut, ringErr   *ring
	tailOf             *ring // whose end is the tail; nil for the spool's
	tail               []byte
	// keep is how much of the end of all output is wanted, 0 for none of it.
	keep   int
	mixed  *ring // both streams as they came; nil where they are held back
	output []byte
}

// heldBack is how much of each stream --quiet-ok keeps where it can make no
// temporary file.
const heldBack = 1 << 20

// openStreams decides how the command's output reaches oncectl's.
func openStreams(real [3]int, quietOK bool, keep int, tempDir string) (*streams, error) {
	s := &streams{real: real, out: -1, err: -1, keep: keep}
	var err error
	switch {
	case !quietOK:
		err = s.passOn()
	case s.spool(tempDir) != nil:
		err = s.keepLast()
	}
	if err != nil {
		s.closeCommandEnds()
		s.end()
		return nil, fmt.Errorf("making the job's pipes: %w", err)
	}
	return s, nil
}

// passOn copies stderr through, to keep its tail. On a terminal it does not:
// there the command sees a terminal, and a person has read it. Stdout is
// copied with it, through the same pipe, only where both are one file (cron's
// pipe), as nothing else would keep them in order; where the end of all output
// is wanted, it is copied through in any case.
func (s *streams) passOn() error {
	if s.keep > 0 {
		s.mixed = newRing(s.keep)
	}
	if copied(s.real[2]) {
		last := newRing(runner.TailBytes)
		r, w, err := newRelay(s.real[2], both(last, s.mixed))
		if err != nil {
			return err
		}
		s.relays, s.tailOf, s.err = []*relay{r}, last, w
		// A device such as /dev/null has no order to keep.
		if sameFile(s.real[1], s.real[2]) && (s.keep > 0 || kind(s.real[1]) != unix.S_IFCHR) {
			s.out = w
		}
	}
	if s.keep == 0 || s.out >= 0 || !copied(s.real[1]) {
		return nil
	}
	r, w, err := newRelay(s.real[1], s.mixed)
	if err != nil {
		return err
	}
	s.relays, s.out = append(s.relays, r), w
	return nil
}

// copied reports whether what goes to fd may be copied through a pipe.
func copied(fd int) bool { return fd >= 0 && !isTerminal(fd) }

// both writes to one, and to two if there is one.
func both(one, two *ring) io.Writer {
	if two == nil {
		return one
	}
	return io.MultiWriter(one, two)
}

// spool sends the output to unlinked temporary files.
func (s *streams) spool(dir string) error {
	one := sameFile(s.real[1], s.real[2])
	var err error
	if s.real[1] >= 0 {
		if s.spoolOut, err = unlinkedFile(dir); err != nil {
			return err
		}
	}
	switch {
	case one:
		s.spoolErr = s.spoolOut
	case s.real[2] >= 0:
		if s.spoolErr, err = unlinkedFile(dir); err != nil {
			s.closeSpools()
			return err
		}
	}
	s.out, s.err = number(s.spoolOut), number(s.spoolErr)
	return nil
}

// unlinkedFile makes a file without a name, which every write appends to.
func unlinkedFile(dir string) (*os.File, error) {
	if dir == "" {
		dir = "/tmp"
	}
	f, err := os.CreateTemp(dir, "oncectl-output-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_APPEND)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// keepLast keeps the end of each stream in memory.
func (s *streams) keepLast() error {
	if s.real[1] >= 0 {
		s.ringOut = newRing(heldBack)
		r, w, err := newRelay(-1, s.ringOut)
		if err != nil {
			return err
		}
		s.relays, s.out = append(s.relays, r), w
	}
	if sameFile(s.real[1], s.real[2]) {
		s.ringErr, s.err, s.tailOf = s.ringOut, s.out, s.ringOut
		return nil
	}
	if s.real[2] >= 0 {
		s.ringErr = newRing(heldBack)
		r, w, err := newRelay(-1, s.ringErr)
		if err != nil {
			return err
		}
		s.relays, s.err, s.tailOf = append(s.relays, r), w, s.ringErr
	}
	return nil
}

// closeCommandEnds closes oncectl's copies of the pipes' writing ends, once
// the command has its own.
func (s *streams) closeCommandEnds() {
	if s.spoolOut == nil && s.spoolErr == nil {
		if s.out >= 0 {
			_ = unix.Close(s.out)
		}
		if s.err >= 0 && s.err != s.out {
			_ = unix.Close(s.err)
		}
	}
	s.out, s.err = -1, -1
}

// drain passes on what the pipes hold, waits until that is done or abandoned,
// and takes the ends that are wanted.
func (s *streams) drain() {
	for _, r := range s.relays {
		r.drain()
	}
	for _, r := range s.relays {
		<-r.done
	}
	switch {
	case s.tailOf != nil:
		s.tail = s.tailOf.Last(runner.TailBytes)
	case s.spoolErr != nil:
		s.tail = endOf(s.spoolErr, runner.TailBytes)
	}
	if s.keep > 0 {
		s.output = s.lastOutput()
	}
}

// lastOutput is the end of all output. Streams that are held back apart have no
// common order: then it is the end of stdout, and that of stderr after it.
func (s *streams) lastOutput() []byte {
	if s.mixed != nil {
		return s.mixed.Last(s.keep)
	}
	var out, err []byte
	switch {
	case s.spoolOut != nil || s.spoolErr != nil:
		out = endOf(s.spoolOut, int64(s.keep))
		if s.spoolErr != s.spoolOut {
			err = endOf(s.spoolErr, int64(s.keep))
		}
	default:
		out = s.ringOut.Last(s.keep)
		if s.ringErr != s.ringOut {
			err = s.ringErr.Last(s.keep)
		}
	}
	err = lastOf(err, max(s.keep/2, s.keep-len(out)))
	return append(lastOf(out, s.keep-len(err)), err...)
}

// lastOf is at most the last n bytes of p.
func lastOf(p []byte, n int) []byte { return p[max(0, len(p)-n):] }

// abandon gives up on a receiver that takes nothing.
func (s *streams) abandon() {
	for _, r := range s.relays {
		r.abandon()
	}
}

// end gives back everything without showing it.
func (s *streams) end() {
	s.abandon()
	for _, r := range s.relays {
		r.close()
	}
	s.relays = nil
	s.closeSpools()
}

func (s *streams) closeSpools() {
	for _, f := range []*os.File{s.spoolOut, s.spoolErr} {
		if f != nil {
			_ = f.Close() // the second time, where both are one, it says so
		}
	}
	s.spoolOut, s.spoolErr = nil, nil
}
