//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// patience makes senders give up before the torture ends.
var patience = []string{
	"--timeout", "3s", "--connect-timeout", "1s", "--retries", "4", "--backoff", "100ms", "--backoff-max", "1s", "--max-wait", "10s",
}

// sending is the call that sends an event, which is sent once unless its id
// says otherwise.
func (a *actor) sending(id string) []string {
	idempotent := strings.HasSuffix(id, "0")
	a.know(func() { a.events[id] = sent{a.store, idempotent} })
	args := append([]string{"send", "--id", id, "--url", a.url(a.store), "-d", "body of " + id}, patience...)
	if idempotent {
		args = append(args, "--idempotent")
	}
	return args
}

// send sends an event, on some hosts at once, or one of before again.
func (a *actor) send() {
	n := a.n
	if a.chance(30) {
		n = a.IntN(a.n + 1)
	}
	id := fmt.Sprintf("%s/send/%d", a.name, n)
	a.atOnce(a.several(), func() call { return call{args: a.sending(id)} }, func(*process) {})
}

// batch sends a batch until it is through, however often it is killed.
func (a *actor) batch() {
	var lines strings.Builder
	for i := range 10 + a.IntN(40) {
		id := fmt.Sprintf("%s/batch/%d/%d/one", a.name, a.n, i)
		a.know(func() { a.events[id] = sent{a.store, false} })
		line, err := json.Marshal(map[string]string{"id": id, "data": "body of " + id})
		check(err)
		lines.Write(append(line, '\n'))
	}
	for try := 0; try < 5 && !a.stopping(); try++ {
		through := false
		a.atOnce(a.several(), func() call {
			return call{args: append([]string{"send", "--batch", "--url", a.url(a.store)}, patience...), stdin: lines.String()}
		}, func(p *process) { through = through || p.status <= 1 })
		if through {
			return
		}
	}
}

// retry sends again what surely was not delivered.
func (a *actor) retry() {
	a.sleep(a.upTo(6 * time.Second))
	p := a.oncectl(call{args: []string{"failed", "list", "--kind", pick(a.Rand, []string{"send", "outbox"}), "-o", "json"}})
	if p == nil || p.status != 0 {
		return
	}
	var letters []struct {
		ID        int64
		Certainty string
	}
	if json.Unmarshal(p.out.Bytes(), &letters) != nil {
		return
	}
	args := append([]string{"failed", "retry"}, patience...)
	for _, l := range letters {
		if l.Certainty == "failed" && a.chance(50) && len(args) < 40 {
			args = append(args, fmt.Sprint(l.ID))
		}
	}
	if len(args) > len(patience)+2 {
		a.oncectl(call{args: args})
	}
}

// outboxKeys are the keys of one adder: nobody else adds to them.
const outboxKeys = 3

// add adds rows to the outbox, as an application or with the command.
func (a *actor) add() {
	key := fmt.Sprintf("%s/%d", a.name, a.IntN(outboxKeys))
	if a.store == "local" || a.chance(20) {
		p := a.oncectl(call{args: []string{"outbox", "add", "--topic", "t", "--key", key, "-d", fmt.Sprintf(`{"n": %d}`, a.n), "-o", "json"}})
		var row struct{ ID int64 }
		if p != nil && p.status == 0 && json.Unmarshal(p.out.Bytes(), &row) == nil {
			a.committed(row.ID, key)
		}
		return
	}
	late := a.chance(20) // commits late, and some never; then without a key, whose order is open
	keep := !late || a.chance(70)
	var ids []int64
	err := a.ask(func(ctx context.Context, c *pgx.Conn) error {
		tx, err := c.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }() // after Commit it does nothing
		for i := range 1 + a.IntN(5) {
			var id int64
			row := key
			if late {
				row = ""
			}
			err := tx.QueryRow(ctx, `insert into oncectl.outbox (topic, key, payload) values ('t', nullif($1, ''), jsonb_build_object('n', $2::int, 'i', $3::int)) returning id`,
				row, a.n, i).Scan(&id)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		if late {
			a.sleep(a.upTo(1500 * time.Millisecond))
		}
		if !keep {
			return nil
		}
		return tx.Commit(ctx)
	})
	if late {
		key = ""
	}
	var refused *pgconn.PgError
	if keep && (err == nil || !errors.As(err, &refused)) && a.isThere(ids) {
		for _, id := range ids {
			a.committed(id, key)
		}
	}
}

func (a *actor) committed(id int64, key string) {
	a.know(func() { a.rows[a.store] = append(a.rows[a.store], added{id, key}) })
}

// isThere tells what became of a commit whose answer may have been lost.
func (a *actor) isThere(ids []int64) bool {
	for len(ids) > 0 {
		n := 0
		err := a.ask(func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, "select count(*) from oncectl.outbox where id = any($1)", ids).Scan(&n)
		})
		if err == nil {
			return n == len(ids)
		}
		time.Sleep(100 * time.Millisecond) // the server is being restarted
	}
	return false
}

func (a *actor) publish() {
	d := a.upTo(8 * time.Second).String()
	h := pick(a.Rand, a.hosts)
	a.run(h, a.nextID(), call{store: a.store, route: pick(a.Rand, pgRoutes), args: append([]string{
		"outbox", "publish", "--for", d, "--url", a.url(a.store), "--batch", fmt.Sprint(1 + a.IntN(30)),
	}, patience...)})
}
