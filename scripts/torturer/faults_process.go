//go:build linux

package main

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// The faults of processes: killed, stopped, told to end.

// unhurt are those who may have a fault that is theirs alone: each has one, as
// a guard that is killed after its oncectl was would be a second.
func unhurt(p *process) bool { return !p.hit.Load() }

func (f *faults) signal(p *process, pid int, sig syscall.Signal, what string) bool {
	if pid == 0 {
		return false // it has none yet, or no more
	}
	f.note("fault: %s: process %d (%d)", what, p.id, pid)
	return syscall.Kill(pid, sig) == nil
}

func (f *faults) killOncectl(n uint64, _ *rand.Rand) bool {
	p := f.target(n, unhurt)
	return p != nil && !p.hit.Swap(true) && f.signal(p, p.cmd.Process.Pid, syscall.SIGKILL, "oncectl killed")
}

func (f *faults) terminate(n uint64, _ *rand.Rand) bool {
	p := f.target(n, unhurt)
	return p != nil && f.signal(p, p.cmd.Process.Pid, syscall.SIGTERM, "oncectl told to end")
}

func hasJob(p *process) bool { return unhurt(p) && (p.args[0] == "run" || p.args[0] == "claim") }

func (f *faults) killGuard(n uint64, _ *rand.Rand) bool {
	p := f.target(n, hasJob)
	if p == nil || p.hit.Swap(true) {
		return false
	}
	guard, _ := p.guardAndJob()
	return f.signal(p, guard, syscall.SIGKILL, "guard killed")
}

func (f *faults) killJob(n uint64, _ *rand.Rand) bool {
	p := f.target(n, hasJob)
	if p == nil {
		return false
	}
	_, job := p.guardAndJob()
	return f.signal(p, job, syscall.SIGKILL, "job killed")
}

// stopShort stops it for less than the wait that a successor makes.
func (f *faults) stopShort(n uint64, r *rand.Rand) bool {
	p := f.target(n, unhurt)
	return p != nil && f.pause(p, p.cmd.Process.Pid, time.Duration(r.Int64N(int64(time.Second))))
}

func (f *faults) stopGuard(n uint64, r *rand.Rand) bool {
	p := f.target(n, hasJob)
	if p == nil || p.hit.Swap(true) { // a guard that is stopped kills nothing
		return false
	}
	guard, _ := p.guardAndJob()
	return f.pause(p, guard, time.Duration(r.Int64N(int64(time.Second))))
}

func (f *faults) pause(p *process, pid int, d time.Duration) bool {
	if !f.signal(p, pid, syscall.SIGSTOP, "stopped for "+d.String()) {
		return false
	}
	f.going.Go(func() {
		f.last(d)
		f.signal(p, pid, syscall.SIGCONT, "continued")
	})
	return true
}

// stopLong stops one for longer than any lease. The guard pauses its job.
func (f *faults) stopLong(n uint64, r *rand.Rand) bool {
	p := f.target(n, func(p *process) bool { return unhurt(p) && p.args[0] == "run" })
	return p != nil && f.alone("stop", func() {
		_, unlock := f.protect(func(q *process) bool { return q == p })
		ok := !p.hit.Swap(true) && f.signal(p, p.cmd.Process.Pid, syscall.SIGSTOP, "stopped for long")
		unlock()
		if ok {
			f.last(20*time.Second + time.Duration(r.Int64N(int64(20*time.Second))))
			f.signal(p, p.cmd.Process.Pid, syscall.SIGCONT, "continued")
			f.last(noticed)
		}
		p.protected.Store(false)
	})
}
