//go:build linux

package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// What a job's stamp says.
const (
	begun = 'b'
	alive = 'a'
	done  = 'e'
)

// stamp is a line of a lock's file. The lines are in the order in which the
// kernel appended them.
type stamp struct {
	job      string
	kind     byte
	boot, at int64 // nanoseconds since boot; microseconds of the database's clock
	run, key string
}

// evidence is all that the checker goes by.
type evidence struct {
	stamps   map[string][]stamp // by store and lock, with a dot between
	requests []request          // as the receiver wrote them down
	kept     *kept
	tables   map[string]*tables // by store
	left     []string
}

// tables is what a store holds.
type tables struct {
	events  map[string]event
	letters []letter
	runs    []runRow
	outbox  []outboxRow
}

type event struct {
	outcome    string
	unfinished bool
	run        int64
	claimedAt  int64 // microseconds
}

type letter struct {
	kind, event, certainty string
	resolved               bool
}

type runRow struct {
	id                    int64
	lock, key, outcome    string
	startedAt, finishedAt int64 // microseconds
}

type outboxRow struct {
	id           int64
	key          string
	sent, failed bool
}

// gather reads all files and tables.
func (w *world) gather() *evidence {
	ev := &evidence{stamps: map[string][]stamp{}, kept: &w.kept, tables: map[string]*tables{}, left: w.left}
	files, _ := filepath.Glob(w.evidence("stamps/*"))
	for _, f := range files {
		ev.stamps[filepath.Base(f)] = readStamps(f)
	}
	eachLine(w.evidence("requests"), func(line string) {
		var r request
		check(json.Unmarshal([]byte(line), &r))
		ev.requests = append(ev.requests, r)
	})
	eachLine(w.evidence("won"), func(id string) { w.won[id] = append(w.won[id], 0) })
	for _, store := range []string{"pg", "local"} {
		ev.tables[store] = w.readTables(store)
	}
	return ev
}

func readStamps(file string) (all []stamp) {
	eachLine(file, func(line string) {
		var s stamp
		var kind string
		if n, _ := fmt.Sscan(line, &s.job, &kind, &s.boot, &s.at, &s.run, &s.key); n < 4 {
			return // a full disk is not where these are
		}
		s.kind = kind[0]
		if s.kind == alive && len(all) > 1 {
			// The last of many is enough, but for its order among others'.
			if last := &all[len(all)-1]; last.job == s.job && last.kind == alive {
				*last = s
				return
			}
		}
		all = append(all, s)
	})
	return all
}

func eachLine(file string, f func(string)) {
	r, err := os.Open(file)
	if os.IsNotExist(err) {
		return
	}
	check(err)
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f(lines.Text())
	}
	check(lines.Err())
}

// query asks a store; {s} in the query is where its tables are, and {t:c} the
// time in column c, in microseconds.
func (w *world) query(store, query string, each func(*sql.Rows) error) error {
	driver, at, schema, micros := "pgx", w.server.URL(), "oncectl.", "coalesce((extract(epoch from %s) * 1000000)::bigint, 0)"
	if store == "local" {
		driver, at, schema = "sqlite", "file:"+filepath.Join(w.local(), "oncectl.db")+"?_pragma=busy_timeout(10000)", ""
		micros = "coalesce(cast(unixepoch(%s, 'subsec') * 1000000 as integer), 0)"
	}
	for _, c := range []string{"claimed_at", "started_at", "finished_at"} {
		query = strings.ReplaceAll(query, "{t:"+c+"}", fmt.Sprintf(micros, c))
	}
	db, err := sql.Open(driver, at)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query(strings.ReplaceAll(query, "{s}", schema))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (w *world) readTables(store string) *tables {
	t := &tables{events: map[string]event{}}
	check(w.query(store, "select event_id, coalesce(outcome, ''), expires_at is not null, coalesce(run_id, 0), {t:claimed_at} from {s}processed_events", func(r *sql.Rows) error {
		var id string
		var e event
		err := r.Scan(&id, &e.outcome, &e.unfinished, &e.run, &e.claimedAt)
		e.unfinished = e.unfinished && e.outcome == ""
		t.events[id] = e
		return err
	}))
	check(w.query(store, "select kind, coalesce(event_id, ''), certainty, resolved_at is not null from {s}failed_jobs", func(r *sql.Rows) error {
		var l letter
		err := r.Scan(&l.kind, &l.event, &l.certainty, &l.resolved)
		t.letters = append(t.letters, l)
		return err
	}))
	check(w.query(store, "select id, lock, coalesce(key, ''), coalesce(outcome, 'unknown'), {t:started_at}, {t:finished_at} from {s}runs order by id", func(r *sql.Rows) error {
		var x runRow
		err := r.Scan(&x.id, &x.lock, &x.key, &x.outcome, &x.startedAt, &x.finishedAt)
		t.runs = append(t.runs, x)
		return err
	}))
	check(w.query(store, "select id, coalesce(key, ''), sent_at is not null, failed_at is not null from {s}outbox order by id", func(r *sql.Rows) error {
		var x outboxRow
		err := r.Scan(&x.id, &x.key, &x.sent, &x.failed)
		t.outbox = append(t.outbox, x)
		return err
	}))
	return t
}
