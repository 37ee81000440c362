//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The counters, each of which must be 0.
var counters = []string{
	"jobs of one lock that overlapped",
	"claims of a run after its successor's job began",
	"claims won twice, or forgotten",
	"commands of one claim that began twice",
	"ids sent twice without --idempotent",
	"events with an untrue outcome, or unnamed",
	"ticks and keys run twice",
	"ticks and keys never run",
	"rows of the outbox lost",
	"first deliveries of a key out of order",
	"locks, transactions, sockets, processes left",
	"crashes of oncectl itself",
}

const (
	overlapped = iota
	fenced
	wonTwice
	commandTwice
	sentTwice
	untrue
	ranTwice
	neverRan
	lost
	outOfOrder
	leaked
	crashed
)

// findings are what was not kept, with its evidence, by counter.
type findings [][]string

func (f findings) count() (n int) {
	for _, all := range f {
		n += len(all)
	}
	return n
}

func (f findings) add(counter int, format string, args ...any) {
	f[counter] = append(f[counter], fmt.Sprintf(format, args...))
}

// check holds oncectl to all that it promises.
func (ev *evidence) check() findings {
	f := make(findings, len(counters))
	for name, stamps := range ev.stamps {
		store, lock, _ := strings.Cut(name, ".")
		if lock == "command" {
			checkCommands(f, name, stamps)
			continue
		}
		checkLock(f, name, stamps)
		if store == "pg" { // whose clock is the stamps'
			checkFence(f, name, stamps, ev.tables[store].events)
		}
		checkKeys(f, name, stamps, ev.tables[store].runs)
	}
	ev.checkClaims(f)
	ev.checkRequests(f)
	ev.checkEvents(f)
	ev.checkNever(f)
	ev.checkOutbox(f)
	for _, s := range ev.left {
		f.add(leaked, "%s", s)
	}
	for _, s := range ev.kept.crashes {
		f.add(crashed, "%s", s)
	}
	for _, all := range f {
		slices.Sort(all)
	}
	return f
}

func when(micros int64) string { return time.UnixMicro(micros).Format(clock) }

func (s stamp) String() string {
	return fmt.Sprintf("%s (run %s) %c at %s", s.job, s.run, s.kind, when(s.at))
}

// checkLock looks for a job that leaves a stamp after another's.
func checkLock(f findings, name string, stamps []stamp) {
	over := map[string]stamp{} // jobs that another has followed
	begins := map[string]stamp{}
	named := map[[2]string]bool{} // pairs: once is enough
	for i, s := range stamps {
		if s.kind == begun {
			begins[s.job] = s
		}
		if by, was := over[s.job]; was {
			if pair := [2]string{min(s.job, by.job), max(s.job, by.job)}; !named[pair] {
				named[pair] = true
				f.add(overlapped, "%s: job %v, begun as %v, went on beside %v", name, s, begins[s.job], by)
			}
			delete(over, s.job)
		}
		if i > 0 && stamps[i-1].job != s.job {
			over[stamps[i-1].job] = s
		}
	}
}

// checkFence looks for claims that a run made after the next one's job began.
func checkFence(f findings, name string, stamps []stamp, events map[string]event) {
	next := map[int64]stamp{} // by run, the first stamp of the next job
	var last int64
	for _, s := range stamps {
		if s.kind != begun {
			continue
		}
		run, err := strconv.ParseInt(s.run, 10, 64)
		if err != nil {
			continue
		}
		if _, has := next[last]; !has && last != 0 {
			next[last] = s
		}
		last = run
	}
	for id, e := range events {
		if s, has := next[e.run]; has && e.claimedAt > s.at {
			f.add(fenced, "%s: %q was claimed for run %d at %s, and %v had begun", name, id, e.run, when(e.claimedAt), s)
		}
	}
}

// checkCommands looks for a claim whose command began twice: the job is named
// after it.
func checkCommands(f findings, name string, stamps []stamp) {
	begins := map[string]stamp{}
	for _, s := range stamps {
		if s.kind != begun {
			continue
		}
		if before, has := begins[s.job]; has {
			f.add(commandTwice, "%s: %v, and before it %v", name, s, before)
		}
		begins[s.job] = s
	}
}

// checkKeys looks for keys that have succeeded twice, or were begun again after
// their success was recorded.
func checkKeys(f findings, name string, stamps []stamp, runs []runRow) {
	succeeded := map[string]runRow{}
	_, lock, _ := strings.Cut(name, ".")
	for _, r := range runs {
		if r.lock != lock || r.key == "" || r.outcome != "succeeded" {
			continue
		}
		if before, has := succeeded[r.key]; has {
			f.add(ranTwice, "%s: key %q succeeded in run %d and in run %d", name, r.key, before.id, r.id)
			continue
		}
		succeeded[r.key] = r
	}
	for _, s := range stamps {
		r, has := succeeded[s.key]
		if s.kind == begun && has && s.run != fmt.Sprint(r.id) && s.at > r.finishedAt+slack {
			f.add(ranTwice, "%s: job %v of key %q, which had succeeded in run %d at %s", name, s, s.key, r.id, when(r.finishedAt))
		}
	}
}

// slack is how much later than it was a time in a table may seem earlier: the
// local store keeps milliseconds.
const slack = 2000

func (ev *evidence) checkClaims(f findings) {
	for id, by := range ev.kept.won {
		if len(by) > 1 {
			f.add(wonTwice, "%q was won by processes %v (0: a job)", id, by)
		}
		store, _, _ := strings.Cut(id, "/")
		if _, has := ev.tables[store].events[id]; !has {
			f.add(wonTwice, "%q was won by process %v and is not in the table", id, by)
		}
	}
}

// checkRequests looks for events that may have been processed and were sent
// once more.
func (ev *evidence) checkRequests(f findings) {
	first := map[string]request{} // by id, the one that was not surely refused
	body := map[string]string{}
	for _, r := range ev.requests {
		e, known := ev.kept.events[r.ID]
		if !known {
			continue // of the outbox
		}
		if was, has := body[r.ID]; has && was != r.Body {
			f.add(sentTwice, "%q was sent with another body: %q, then %q", r.ID, was, r.Body)
		}
		body[r.ID] = r.Body
		if before, has := first[r.ID]; has && !e.idempotent {
			f.add(sentTwice, "%q came at %s (%s) and again at %s (%s)", r.ID, when(before.At), before.Answer, when(r.At), r.Answer)
		}
		if r.Answer != "429" && r.Answer != "400" {
			first[r.ID] = r
		}
	}
}

// checkEvents compares what the tables say with what the receiver has. An event
// that nobody has begun is in neither.
func (ev *evidence) checkEvents(f findings) {
	processed := map[string]request{}
	for _, r := range ev.requests {
		if r.Processed {
			processed[r.ID] = r
		}
	}
	named := map[string]string{} // by event, the certainty of its open dead letter
	for _, t := range ev.tables {
		for _, l := range t.letters {
			if !l.resolved {
				named[l.event] = l.certainty
			}
		}
	}
	for id, s := range ev.kept.events {
		e, has := ev.tables[s.store].events[id]
		r, came := processed[id]
		switch {
		case !has && came:
			f.add(untrue, "%q is not in the table and was processed at %s", id, when(r.At))
		case !has:
		case e.unfinished:
			f.add(untrue, "%q is unfinished for good", id)
		case e.outcome == "delivered" && !came:
			f.add(untrue, "%q is said to be delivered and was not processed", id)
		case e.outcome == "failed" && came:
			f.add(untrue, "%q is said to have failed and was processed at %s", id, when(r.At))
		case (e.outcome == "failed" || e.outcome == "in_doubt") && named[id] != e.outcome:
			f.add(untrue, "%q: outcome %s, and its dead letter says %q", id, e.outcome, named[id])
		case e.outcome == "":
			f.add(untrue, "%q is a bare claim, and was to be sent", id)
		}
	}
}

// checkNever looks for keys of which no run has succeeded, and for ticks that
// are said to be done and are not.
func (ev *evidence) checkNever(f findings) {
	succeeded := map[string]bool{}
	for store, t := range ev.tables {
		for _, r := range t.runs {
			if r.outcome == "succeeded" {
				succeeded[store+" "+r.lock+" "+r.key] = true
			}
		}
	}
	for name, said := range ev.kept.keys {
		if !succeeded[name] {
			f.add(neverRan, "key %s never succeeded (said to have: %v)", name, said)
		}
	}
	for _, t := range ev.kept.ticks {
		found := false
		// A tick that is due within five seconds counts as due.
		for at := t.from.Truncate(time.Minute); !at.After(t.to.Add(5 * time.Second)); at = at.Add(time.Minute) {
			found = found || succeeded[t.store+" "+t.lock+" "+at.UTC().Format(time.RFC3339)]
		}
		if !found {
			f.add(neverRan, "tick of %s: process %d, %s to %s, said that it is done", t.store, t.process, t.from.Format(clock), t.to.Format(clock))
		}
	}
}

// checkOutbox looks for rows that were not delivered, and for keys whose rows
// came first in another order than that of their ids.
func (ev *evidence) checkOutbox(f findings) {
	for store, t := range ev.tables {
		first := map[string]request{}
		for _, r := range ev.requests {
			if _, has := first[r.ID]; !has && r.Store == store && r.Processed {
				first[r.ID] = r
			}
		}
		there := map[int64]bool{}
		last := map[string]outboxRow{}
		for _, row := range t.outbox {
			there[row.id] = true
			id := fmt.Sprint("outbox-", row.id)
			r, came := first[id]
			switch {
			case !came:
				f.add(lost, "%s: %s (sent %v, failed %v) was never processed", store, id, row.sent, row.failed)
				continue
			case !row.sent:
				f.add(lost, "%s: %s was processed at %s and is not marked as sent", store, id, when(r.At))
			}
			if row.key == "" {
				continue
			}
			before := fmt.Sprint("outbox-", last[row.key].id)
			if b, has := first[before]; has && b.At > r.At {
				f.add(outOfOrder, "%s: key %s: %s came at %s, before %s at %s", store, row.key, id, when(r.At), before, when(b.At))
			}
			last[row.key] = row
		}
		for _, a := range ev.kept.rows[store] {
			if !there[a.id] {
				f.add(lost, "%s: row %d was committed and is gone", store, a.id)
			}
		}
	}
}
