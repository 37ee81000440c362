package guard

import (
	"sync"
	"syscall"
)

// Tree acts on all descendants of a process, whatever process group or session
// they are in, by walks of /proc. Root must be a subreaper, so that no
// descendant leaves the tree when its parent dies.
//
// A process is signalled by number just after it was read: the kernel gives
// out numbers in a circle, so one cannot come back within that time.
type Tree struct {
	root int
	mu   sync.Mutex
	// seen remembers the processes that were found by Stop; the value says
	// whether Stop stopped it (else somebody else had before).
	seen map[ident]bool
}

// ident is a process, also after its number was given to another.
type ident struct {
	pid   int
	start uint64 // clock ticks since boot
}

// NewTree returns the tree below root.
func NewTree(root int) *Tree { return &Tree{root: root, seen: map[ident]bool{}} }

// stopPatience bounds how long Stop waits for processes to stop, in
// nanoseconds. They do so within microseconds unless the machine is out of
// breath; the lease leaves five seconds for it (runner.LeaseFreedAfter).
const stopPatience = 2e9

// Stop stops every descendant. It returns after two walks in a row that found
// nothing new and nothing running: a process that was born while the first
// passed its number had a parent that ran, and is found by the second. own,
// unless 0, is a process group of descendants only; it is stopped first, since
// the kernel does that in one go. Errors: ETIMEDOUT, and EPERM where a process
// is another user's; what can be stopped is.
func (t *Tree) Stop(own int) syscall.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own > 0 {
		t.noteStopped()
		send(-own, syscall.SIGSTOP)
	}
	begin, quiet := now(), 0
	for {
		moving, denied := t.stopOnce(own)
		if quiet++; moving > 0 {
			quiet = 0
		}
		switch {
		case quiet == 2 && denied:
			return syscall.EPERM
		case quiet == 2:
			return 0
		case now()-begin > stopPatience:
			return syscall.ETIMEDOUT
		case moving > 0:
			sleep(200e3)
		}
	}
}

// noteStopped remembers what others have stopped, before Stop stops a group.
func (t *Tree) noteStopped() {
	t.walk(func(p proc) {
		if _, known := t.seen[p.ident]; !known && p.stopped() {
			t.seen[p.ident] = false
		}
	})
}

// stopOnce stops what runs, and counts what had not been seen to be at rest.
func (t *Tree) stopOnce(own int) (moving int, denied bool) {
	t.walk(func(p proc) {
		_, known := t.seen[p.ident]
		switch {
		case p.dead():
		case p.stopped() && !known:
			t.seen[p.ident] = own > 0 && p.group == own
			moving++
		case p.stopped():
		case known && p.settled():
			// It has the signal and obeys before it runs any code of its own.
		default:
			moving++
			t.seen[p.ident] = true
			if send(p.pid, syscall.SIGSTOP) == syscall.EPERM {
				denied = true
				if known {
					moving--
				}
			}
		}
	})
	return moving, denied
}

// Continue continues what Stop has stopped, parents first, so that the guard
// of a nested run is awake before its job.
func (t *Tree) Continue() syscall.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first syscall.Errno
	t.walk(func(p proc) {
		if !t.seen[p.ident] || p.dead() {
			return
		}
		if err := send(p.pid, syscall.SIGCONT); err != 0 && first == 0 {
			first = err
		}
	})
	clear(t.seen)
	return first
}

// Kill sends SIGKILL to every descendant once. denied says that some may not
// be signalled. It is over only when root has no child left to wait for.
func (t *Tree) Kill(own int) (denied bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own > 0 {
		send(-own, syscall.SIGKILL)
	}
	t.walk(func(p proc) {
		if !p.dead() && send(p.pid, syscall.SIGKILL) == syscall.EPERM {
			denied = true
		}
	})
	return denied
}

// SignalGroup sends sig, once, to each descendant in the process group.
func (t *Tree) SignalGroup(group int, sig syscall.Signal) syscall.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first syscall.Errno
	t.walk(func(p proc) {
		if p.group != group || p.dead() {
			return
		}
		if err := send(p.pid, sig); err != 0 && first == 0 {
			first = err
		}
	})
	return first
}
