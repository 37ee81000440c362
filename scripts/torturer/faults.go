//go:build linux

package main

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
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
