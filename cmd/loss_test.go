package cmd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// What becomes of the job when its lock is lost.

// ticking is a job that shows that it goes on: it claims one event after
// another until the file stop is there.
const ticking = `echo $$ >pids; echo up; n=0
while [ ! -e stop ]; do n=$((n+1)); oncectl claim tick/$ONCECTL_LOCK/$n || exit 9; echo $n >>ticks; done`

func TestRun_WhenTheLockIsTerminatedWithoutARival_TheJobGoesOn(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	p := placeAt(t, url, schema)
	pr := p.start("run", "--lock", "nightly", "-v", "--", "sh", "-c", ticking)
	pr.says("up")
	db := newAdmin(t, url, schema)
	for range 3 {
		before := strings.Count(pr.err.String(), "the job goes on")
		until(t, "a holder was terminated", db.terminateHolder)
		until(t, "the job goes on", func() bool { return strings.Count(pr.err.String(), "the job goes on") > before })
		ticks := p.read("ticks")
		until(t, "it claims again", func() bool { return p.read("ticks") != ticks })
	}
	p.write("stop", "")
	// 9 would say that a claim whose answer was lost was taken for another's.
	pr.ends(0)
}

// Whoever takes the lock while the job is paused has updated the fence: the
// job is killed without being continued, and none of its claims is later than
// the other's run.
func TestRun_WhenARivalTakesTheLostLock_TheJobIsKilled(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	p := placeAt(t, url, schema)
	holder := p.start("run", "--lock", "nightly", "-v", "--", "sh", "-c", ticking)
	holder.says("up")
	var rivals []*process
	for range 6 {
		rivals = append(rivals, p.start("run", "--lock", "nightly", "--once", "rival", "--wait", "50s", "--", "sh", "-c",
			livingOf+`; for q in $left; do ps -o stat= -p $q; done; touch rival; until [ -e rivalstop ]; do sleep 0.05; done`))
	}
	db := newAdmin(t, url, schema)
	// The holder may be the quickest to take its lock again; then once more.
	for !p.exists("rival") {
		queued := db.queue()
		until(t, "a holder was terminated", db.terminateHolder)
		queued.release()
		was := holder.err.String()
		until(t, "somebody has the lock", func() bool {
			return p.exists("rival") || strings.Contains(holder.err.String()[len(was):], "the job goes on")
		})
	}
	holder.ends(120)
	p.write("rivalstop", "")
	for _, r := range rivals {
		r.ends(0)
		for line := range strings.Lines(r.out.String()) {
			if !strings.HasPrefix(line, "T") && !strings.HasPrefix(line, "Z") {
				t.Errorf("as the rival's job began, one of the lost run was %q", line)
			}
		}
	}
	if !strings.Contains(p.start("failed", "list", "-o", "json").ends(0).out.String(), "another run has had it since") {
		t.Error("no dead letter says why")
	}
	if n := db.one(`select count(*) from processed_events e, runs r where r.key = 'rival' and e.claimed_at > r.started_at`); n != 0 {
		t.Errorf("%d claims of the lost run are later than the rival's", n)
	}
}

// admin is another program's connections.
type admin struct {
	t           testing.TB
	url, schema string
	conn        *pgx.Conn
	key         int64
}

func newAdmin(t testing.TB, url, schema string) *admin {
	a := &admin{t: t, url: url, schema: schema, key: runner.LockKey(schema, "nightly")}
	a.conn = a.connect()
	return a
}

func (a *admin) connect() *pgx.Conn {
	a.t.Helper()
	c, err := pgx.Connect(context.Background(), a.url)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = c.Close(context.Background()) })
	if _, err := c.Exec(context.Background(), "set search_path = "+pgx.Identifier{a.schema}.Sanitize()); err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *admin) one(sql string, args ...any) (n int) {
	a.t.Helper()
	if err := a.conn.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// ours picks the advisory locks of the key: pg_locks shows its halves.
const ours = `locktype = 'advisory' and classid::bigint = ($1::bigint >> 32) & 4294967295 and objid::bigint = $1::bigint & 4294967295`

// terminateHolder ends the server process that has the lock, if there is one.
func (a *admin) terminateHolder() bool {
	a.t.Helper()
	return a.one(`select count(pg_terminate_backend(pid)) from pg_locks where granted and `+ours, a.key) > 0
}

// queue asks for the lock in a session that waits in the server's own queue,
// so that it is the next to have it, before anybody who polls.
func (a *admin) queue() *queued {
	a.t.Helper()
	q := &queued{admin: a, conn: a.connect(), had: make(chan error, 1)}
	go func() {
		_, err := q.conn.Exec(context.Background(), "select pg_advisory_lock($1)", a.key)
		q.had <- err
	}()
	until(a.t, "a session waits for the lock", func() bool {
		return a.one(`select count(*) from pg_locks where not granted and `+ours, a.key) > 0
	})
	return q
}

type queued struct {
	*admin
	conn *pgx.Conn
	had  chan error
}

// release gives the lock back as soon as the session has it.
func (q *queued) release() {
	q.t.Helper()
	if err := <-q.had; err != nil {
		q.t.Fatal(fmt.Errorf("waiting for the lock: %w", err))
	}
	if err := q.conn.Close(context.Background()); err != nil {
		q.t.Fatal(err)
	}
}
