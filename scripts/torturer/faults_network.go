//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// The faults of connections: ended, cut, silent.

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
