//go:build linux

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// settled bounds how long something takes once there are no more faults: a
// lock is back, or somebody else's, within a minute.
const settled = 2 * time.Minute

// settle puts all in order: what was begun comes to its end, keys that have not
// succeeded are run, the outbox is emptied.
func (w *world) settle() {
	close(w.stop)
	check(os.WriteFile(w.stopFile, nil, 0o644))
	for _, p := range w.idle(settled) {
		w.left = append(w.left, fmt.Sprintf("process %d on %s, which did not end: %v, since %s", p.id, p.h.name(), p.args, p.began.Format(clock)))
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its stacks go to the log
		select {
		case <-p.done:
		case <-time.After(5 * time.Second):
			_ = p.cmd.Process.Kill() // it may have ended
		}
	}
	w.actors.Wait()
	var both sync.WaitGroup
	for _, store := range []string{"pg", "local"} {
		a := &actor{world: w, Rand: w.choices("settle " + store), name: store + "/settle", store: store}
		both.Go(func() {
			a.finishKeys()
			a.emptyOutbox()
			a.awaitExpiry()
		})
	}
	both.Wait()
	w.lookForLeaks()
}

// finishKeys runs each key that has not succeeded yet.
func (a *actor) finishKeys() {
	var keys map[string]bool
	a.know(func() { keys = maps.Clone(a.keys) })
	for name, said := range keys {
		words := strings.Fields(name) // store, lock, key
		if said || words[0] != a.store {
			continue
		}
		for range 3 {
			args := []string{"run", "--lock", words[1], "--once", words[2], "--busy-exit", fmt.Sprint(busy), "--wait", "1m", "--"}
			h := pick(a.Rand, a.hosts)
			p := a.run(h, a.nextID(), call{store: a.store, route: "direct", lock: words[1], args: append(args, a.job(words[1], 0, 0)...)})
			if p != nil && p.succeeded() {
				a.know(func() { a.keys[name] = true })
				break
			}
		}
	}
}

// emptyOutbox publishes all rows, those that have failed as well.
func (a *actor) emptyOutbox() {
	for end := time.Now().Add(settled); time.Now().Before(end); time.Sleep(time.Second) { // leases end first
		h := pick(a.Rand, a.hosts)
		at := func(args ...string) *process {
			return a.run(h, a.nextID(), call{store: a.store, route: "direct", args: append(args, patience...)})
		}
		at("outbox", "publish", "--url", a.url(a.store))
		p := a.run(h, a.nextID(), call{store: a.store, route: "direct", args: []string{"failed", "list", "--kind", "outbox", "-o", "json"}})
		var letters []struct{ ID int64 }
		if p != nil && json.Unmarshal(p.out.Bytes(), &letters) == nil && len(letters) > 0 {
			args := []string{"failed", "retry", "--in-doubt"}
			for _, l := range letters {
				args = append(args, fmt.Sprint(l.ID))
			}
			at(args...)
			continue
		}
		if a.count("select count(*) from {s}outbox where sent_at is null") == 0 {
			return
		}
	}
}

// awaitExpiry waits until no send is unfinished: 'failed' names what expired.
func (a *actor) awaitExpiry() {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if a.count("select count(*) from {s}processed_events where outcome is null and expires_at is not null") == 0 {
			return
		}
		a.run(pick(a.Rand, a.hosts), a.nextID(), call{store: a.store, route: "direct", args: []string{"failed", "list"}})
	}
}

func (a *actor) count(query string) (n int) {
	check(a.query(a.store, query, func(rows *sql.Rows) error { return rows.Scan(&n) }))
	return n
}

// lookForLeaks looks for what nobody uses any more, and gives it the time in
// which a silent connection is ended.
func (w *world) lookForLeaks() {
	var left []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if left = w.leaks(); len(left) == 0 {
			return
		}
	}
	w.left = append(w.left, left...)
}

func (w *world) leaks() (left []string) {
	for _, h := range w.hosts {
		for _, p := range h.processes() {
			left = append(left, "process on "+h.name()+": "+p)
		}
		sockets, _ := filepath.Glob(filepath.Join(h.dir(), "oncectl-*"))
		for _, s := range sockets {
			left = append(left, "socket: "+s)
		}
	}
	check(w.ask(func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, `
			select 'lock: ' || l.classid || ' ' || l.objid || ' of backend ' || l.pid || ' ' || coalesce(a.application_name, '')
			from pg_locks l left join pg_stat_activity a using (pid) where l.locktype = 'advisory'
			union all
			select 'transaction of backend ' || pid || ' ' || application_name || ' since ' || xact_start || ': ' || query
			from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid() and backend_type = 'client backend'
			union all
			select 'connection of backend ' || pid || ' ' || application_name || ' from ' || client_addr
			from pg_stat_activity where client_addr <<= '10.77.0.0/16' and pid <> pg_backend_pid()`)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		left = append(left, found...)
		return err
	}))
	return append(left, w.fileLocks()...)
}

// fileLocks are the flocks on files of the local store.
func (w *world) fileLocks() (left []string) {
	table, err := os.ReadFile("/proc/locks")
	check(err)
	files, _ := filepath.Glob(filepath.Join(w.local(), "*", "*"))
	for _, f := range files {
		var st unix.Stat_t
		if unix.Stat(f, &st) != nil {
			continue
		}
		for line := range strings.Lines(string(table)) {
			if strings.Contains(line, "FLOCK") && strings.Contains(line, fmt.Sprintf(":%d ", st.Ino)) {
				left = append(left, "lock of "+f+": "+strings.TrimSpace(line))
			}
		}
	}
	return left
}
