//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// faultEvery is the time between two faults. What takes long goes on meanwhile.
const faultEvery = 400 * time.Millisecond

// fault is a kind of fault: how many of 1000 it has, and what it does with the
// number that chooses among its targets. It reports whether there was one.
type fault struct {
	name  string
	share int
	do    func(f *faults, target uint64, r *rand.Rand) bool
}

var allFaults = []fault{
	{"oncectl killed", 300, (*faults).killOncectl},
	{"guard killed", 60, (*faults).killGuard},
	{"job killed", 100, (*faults).killJob},
	{"oncectl stopped for a moment", 80, (*faults).stopShort},
	{"guard stopped for a moment", 30, (*faults).stopGuard},
	{"oncectl told to end", 60, (*faults).terminate},
	{"backend terminated", 160, (*faults).terminateBackend},
	{"stopped for a moment, its backend terminated", 30, (*faults).stopAndTerminate},
	{"connections cut", 50, (*faults).cut},
	{"answer lost", 50, (*faults).loseAnswer},
	{"pooler's connections cut", 12, (*faults).cutPooler},
	{"receiver refuses", 25, (*faults).refuse},
	{"disk full", 20, (*faults).fillDisk},
	{"server restarted, fast", 4, (*faults).restartFast},
	{"server restarted, immediate", 4, (*faults).restartImmediate},
	{"network silent", 7, (*faults).silence},
	{"host without power", 4, (*faults).powerCut},
	{"oncectl stopped for long", 4, (*faults).stopLong},
}

// faults has them happen.
//
// What the README names as two faults at once is not done to one run: to take
// its connection away while oncectl, or its network, does not hear of it. So
// whoever stops an oncectl for long or silences a host waits, with the gate
// closed, until the connections that were ended have been noticed, and marks
// what must be left alone.
type faults struct {
	*world
	counted  counter
	withheld counter

	gate sync.RWMutex // read-locked while connections are being ended

	once    map[string]*sync.Mutex // what happens one at a time
	going   sync.WaitGroup
	healing chan struct{}
}

func newFaults(w *world) *faults {
	f := &faults{world: w, once: map[string]*sync.Mutex{}, healing: make(chan struct{})}
	w.faults = f
	for _, name := range []string{"server", "network", "stop", "disk", "receiver", "pooler"} {
		f.once[name] = &sync.Mutex{}
	}
	return f
}

// run has faults happen for so long. All that is drawn is drawn here, so that
// the seed repeats it.
func (f *faults) run(d time.Duration) {
	r := f.choices("faults")
	tick := time.NewTicker(faultEvery)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		kind, target, own := f.kind(r.IntN(1000)), r.Uint64(), r.Uint64()
		if kind.do(f, target, rand.New(rand.NewPCG(own, target))) {
			f.counted.add(kind.name, 1)
		} else {
			f.withheld.add(kind.name, 1)
		}
	}
}

func (f *faults) kind(n int) fault {
	for _, k := range allFaults {
		if n < k.share {
			return k
		}
		n -= k.share
	}
	panic(gaveUp("the shares of the faults are not 1000"))
}

// heal ends what goes on, and waits for it.
func (f *faults) heal() {
	close(f.healing)
	f.going.Wait()
	f.friendly.Store(true)
}

// last waits for the end of a fault.
func (f *faults) last(d time.Duration) {
	select {
	case <-f.healing:
	case <-time.After(d):
	}
}

// alone does something that takes its time in the background, unless such a
// thing is going on.
func (f *faults) alone(what string, do func()) bool {
	if !f.once[what].TryLock() {
		return false
	}
	f.going.Go(func() {
		defer f.once[what].Unlock()
		do()
	})
	return true
}

// target takes one of the processes for which ok is true.
func (f *faults) target(n uint64, ok func(*process) bool) *process {
	all := f.living(ok)
	if len(all) == 0 {
		return nil
	}
	return all[n%uint64(len(all))]
}

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

// stopAndTerminate is what the wait of three seconds between an unfinished run
// and the next is for: oncectl does not notice at once that its lock is lost.
// (For longer it would be what the README names as two faults at once.)
func (f *faults) stopAndTerminate(n uint64, r *rand.Rand) bool {
	p := f.target(n, func(p *process) bool {
		return unhurt(p) && p.args[0] == "run" && p.store == "pg" && !p.h.silent.Load()
	})
	return p != nil && f.ending(func() bool {
		if !f.pause(p, p.cmd.Process.Pid, time.Second+time.Duration(r.Int64N(int64(time.Second)))) {
			return false
		}
		return f.ask(func(ctx context.Context, c *pgx.Conn) error {
			f.note("fault: holder of %s terminated", p.lock)
			_, err := c.Exec(ctx, `
				select pg_terminate_backend(a.pid) from pg_stat_activity a join pg_locks l on l.pid = a.pid
				where l.locktype = 'advisory' and l.granted and a.application_name = $1`, "oncectl "+p.lock)
			return err
		}) == nil
	})
}

// noticed is the time in which a process notices that its connection was ended.
const noticed = time.Second

// protect marks what ok is true for, once all connections that were ended have
// been noticed. No connection is ended until unlock is called.
func (f *faults) protect(ok func(*process) bool) (marked []*process, unlock func()) {
	f.gate.Lock()
	f.last(noticed)
	marked = f.living(ok)
	for _, p := range marked {
		p.protected.Store(true)
	}
	return marked, f.gate.Unlock
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

// silence has the network of a host lose all packets. Processes that are
// started meanwhile are protected by the host.
func (f *faults) silence(n uint64, r *rand.Rand) bool {
	h := f.hosts[n%uint64(len(f.hosts))]
	return f.alone("network", func() {
		f.note("fault: %s silent", h.name())
		f.gate.Lock()
		f.last(noticed)
		h.silent.Store(true)
		h.silence()
		f.gate.Unlock()
		f.last(2*time.Second + time.Duration(r.Int64N(int64(38*time.Second))))
		h.speak()
		f.note("%s speaks", h.name())
		f.last(noticed)
		h.silent.Store(false)
	})
}

func (f *faults) powerCut(n uint64, _ *rand.Rand) bool {
	h := f.hosts[n%uint64(len(f.hosts))]
	return f.alone("network", func() {
		f.note("fault: %s without power", h.name())
		h.crash()
		f.note("%s booted", h.name())
	})
}

// spared are the locks whose holders do not hear that their connection ends.
func (f *faults) spared() (locks []string) {
	for _, p := range f.living(func(p *process) bool {
		return p.store == "pg" && p.lock != "" && (p.protected.Load() || p.h.silent.Load())
	}) {
		locks = append(locks, p.lock)
	}
	return slices.Compact(locks)
}

// ending ends connections, unless somebody needs them to be left alone.
func (f *faults) ending(do func() bool) bool {
	if !f.gate.TryRLock() {
		return false
	}
	defer f.gate.RUnlock()
	return do()
}

func (f *faults) terminateBackend(n uint64, _ *rand.Rand) bool {
	return f.ending(func() bool {
		spared := []string{} // nil would be null, which nothing differs from
		for _, lock := range f.spared() {
			spared = append(spared, "oncectl "+lock)
		}
		done := false
		err := f.ask(func(ctx context.Context, c *pgx.Conn) error {
			var pids []int
			var names []string
			err := c.QueryRow(ctx, `
				select coalesce(array_agg(pid order by pid), '{}'), coalesce(array_agg(application_name order by pid), '{}') from pg_stat_activity
				where application_name like 'oncectl%' and application_name <> all($1)`, spared).Scan(&pids, &names)
			if err != nil || len(pids) == 0 {
				return err
			}
			i := n % uint64(len(pids))
			f.note("fault: backend %d of %s terminated", pids[i], names[i])
			return c.QueryRow(ctx, "select pg_terminate_backend($1)", pids[i]).Scan(&done)
		})
		return err == nil && done
	})
}

// proxied tells whether one of the host's proxied connections must not be ended.
func (f *faults) proxied(h *host) bool {
	return len(f.living(func(p *process) bool { return p.h == h && p.route == "proxy" && p.protected.Load() })) > 0
}

func (f *faults) cut(n uint64, _ *rand.Rand) bool {
	h := f.hosts[n%uint64(len(f.hosts))]
	return f.ending(func() bool {
		if f.proxied(h) {
			return false
		}
		f.note("fault: proxied connections of %s cut", h.name())
		h.mu.RLock()
		defer h.mu.RUnlock()
		h.proxy.CloseAll()
		return true
	})
}

// loseAnswer cuts a connection instead of passing on some answer of the server.
func (f *faults) loseAnswer(n uint64, r *rand.Rand) bool {
	h := f.hosts[n%uint64(len(f.hosts))]
	left := r.IntN(20)
	h.mu.RLock()
	defer h.mu.RUnlock()
	h.proxy.CutWhen(func([]byte) bool {
		if left--; left > 0 {
			return false
		}
		return f.ending(func() bool { return !f.proxied(h) })
	})
	return true
}

// cutPooler ends all connections of a pooler, of its clients and to the server.
func (f *faults) cutPooler(n uint64, _ *rand.Rand) bool {
	route := []string{"pooled", "session"}[n%2]
	for _, p := range f.living(func(p *process) bool { return p.route == route && p.lock != "" }) {
		if p.protected.Load() || p.h.silent.Load() {
			return false
		}
	}
	return f.ending(func() bool {
		console := *f.poolers[route]
		console.Path = "/pgbouncer"
		console.RawQuery = "sslmode=disable&default_query_exec_mode=simple_protocol"
		err := askAt(console.String(), func(ctx context.Context, c *pgx.Conn) error {
			f.note("fault: connections of the %s pooler cut", route)
			for _, s := range []string{"kill postgres", "resume postgres"} {
				if _, err := c.PgConn().Exec(ctx, s).ReadAll(); err != nil {
					f.note("%s: %v", s, err)
					return err
				}
			}
			return nil
		})
		return err == nil
	})
}

func (f *faults) restartFast(_ uint64, r *rand.Rand) bool      { return f.restart("fast", r) }
func (f *faults) restartImmediate(_ uint64, r *rand.Rand) bool { return f.restart("immediate", r) }

// restart is not withheld from anybody: who comes after a restart waits for
// longer than a lease.
func (f *faults) restart(mode string, r *rand.Rand) bool {
	return f.alone("server", func() {
		f.note("fault: server stopped, %s", mode)
		f.server.Stop(f.t, mode)
		f.last(time.Duration(r.Int64N(int64(2 * time.Second))))
		f.server.Up(f.t)
		f.note("server up")
		f.last(20 * time.Second)
	})
}

func (f *faults) refuse(_ uint64, r *rand.Rand) bool {
	return f.alone("receiver", func() {
		f.refusing.Store(true)
		f.last(time.Duration(r.Int64N(int64(2 * time.Second))))
		f.refusing.Store(false)
	})
}

// fillDisk fills the local store's file system.
func (f *faults) fillDisk(_ uint64, r *rand.Rand) bool {
	return f.alone("disk", func() {
		f.note("fault: disk full")
		name := f.local() + "/filler"
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY, 0o600)
		check(err)
		block := []byte(strings.Repeat("full", 1024))
		for err == nil {
			_, err = unix.Write(fd, block)
		}
		unix.Close(fd)
		f.last(time.Duration(r.Int64N(int64(3 * time.Second))))
		check(unix.Unlink(name))
		f.note("disk no longer full")
	})
}
