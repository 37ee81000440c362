//go:build linux

package main

import (
	"strings"
	"testing"
	"time"
)

// whole is what a torture leaves in which everything was kept.
func whole() *evidence {
	k := newKept()
	k.events["pg/send/1"] = sent{"pg", false}
	k.events["pg/send/2"] = sent{"pg", true}
	k.events["pg/send/3"] = sent{"pg", false}
	k.events["pg/send/4"] = sent{"pg", false}
	k.events["pg/send/5"] = sent{"pg", false} // never started
	k.won["pg/claim/1"] = []int{1}
	k.keys["pg a k1"] = true
	k.ticks = []tickDone{{"pg", "tick", time.Unix(55, 0), time.Unix(58, 0), 1}}
	k.rows["pg"] = []added{{1, "k"}, {2, "k"}, {3, ""}}
	return &evidence{
		kept: &k,
		stamps: map[string][]stamp{
			"pg.a": {
				{"1", begun, 10, 10, "7", "k1"}, {"1", alive, 20, 20, "", ""}, {"1", done, 30, 30, "", ""},
				{"2", begun, 40, 40, "8", "-"}, {"2", alive, 50, 50, "", ""},
				{"3", begun, 60, 60, "9", "-"}, {"3", done, 70, 70, "", ""},
			},
			"pg.command": {{"pg/claim/2", begun, 10, 10, "-", "-"}, {"pg/claim/2", done, 10, 10, "-", "-"}},
		},
		requests: []request{
			{1, "pg", "pg/send/1", "x", 1, "429", false},
			{2, "pg", "pg/send/1", "x", 2, "200", true},
			{3, "pg", "pg/send/2", "y", 1, "502 after the work", true},
			{4, "pg", "pg/send/2", "y", 2, "200", true},
			{5, "pg", "pg/send/3", "z", 1, "400", false},
			{6, "pg", "pg/send/4", "u", 1, "hangs before the work", false},
			{7, "pg", "outbox-1", "1", 1, "200", true},
			{8, "pg", "outbox-2", "2", 1, "200", true},
			{9, "pg", "outbox-1", "1", 2, "200", true}, // a repeat may come late
			{10, "pg", "outbox-3", "3", 1, "200", true},
		},
		tables: map[string]*tables{"pg": {
			events: map[string]event{
				"pg/claim/1": {run: 8, claimedAt: 45}, "pg/claim/2": {outcome: "delivered"},
				"pg/send/1": {outcome: "delivered"}, "pg/send/2": {outcome: "delivered"},
				"pg/send/3": {outcome: "failed"}, "pg/send/4": {outcome: "in_doubt"},
			},
			letters: []letter{
				{"send", "pg/send/3", "failed", false}, {"send", "pg/send/4", "in_doubt", false}, {"send", "pg/send/1", "failed", true},
			},
			runs: []runRow{
				{7, "a", "k1", "succeeded", 5, 35}, {8, "a", "", "unknown", 38, 0}, {9, "a", "", "succeeded", 58, 71},
				{10, "tick", "1970-01-01T00:01:00Z", "succeeded", 1, 2}, // 55 s and 5 s later
			},
			outbox: []outboxRow{{1, "k", true, false}, {2, "k", true, false}, {3, "", true, false}},
		}},
	}
}

func TestCheck_WhenAllWasKept_FindsNothing(t *testing.T) {
	for i, all := range whole().check() {
		for _, s := range all {
			t.Errorf("%s: %s", counters[i], s)
		}
	}
}

func TestCheck_WhenSomethingWasNotKept_NamesIt(t *testing.T) {
	for name, c := range map[string]struct {
		counter int
		names   string // what the finding says
		spoil   func(*evidence)
	}{
		"a stamp after another job's": {overlapped, "job 2 (run ", func(ev *evidence) {
			ev.stamps["pg.a"] = append(ev.stamps["pg.a"], stamp{"2", alive, 80, 80, "", ""})
		}},
		"a claim after the next job began": {fenced, `"pg/claim/1" was claimed for run 8`, func(ev *evidence) {
			ev.tables["pg"].events["pg/claim/1"] = event{run: 8, claimedAt: 61}
		}},
		"a claim won twice":                {wonTwice, "[1 2]", func(ev *evidence) { ev.kept.won["pg/claim/1"] = []int{1, 2} }},
		"a claim that was won and is gone": {wonTwice, "pg/claim/9", func(ev *evidence) { ev.kept.won["pg/claim/9"] = []int{1} }},
		"a command that began twice": {commandTwice, "pg/claim/2", func(ev *evidence) {
			ev.stamps["pg.command"] = append(ev.stamps["pg.command"], stamp{"pg/claim/2", begun, 20, 20, "-", "-"})
		}},
		"an id that came again after it was processed": {sentTwice, `"pg/send/1"`, func(ev *evidence) {
			ev.requests = append(ev.requests, request{11, "pg", "pg/send/1", "x", 3, "200", true})
		}},
		"an id that came again after a doubtful answer": {sentTwice, `"pg/send/4"`, func(ev *evidence) {
			ev.requests = append(ev.requests, request{11, "pg", "pg/send/4", "u", 2, "429", false})
		}},
		"an id with another body": {sentTwice, "another body", func(ev *evidence) { ev.requests[1].Body = "not x" }},
		"delivered and never processed": {untrue, "was not processed", func(ev *evidence) {
			ev.tables["pg"].events["pg/send/3"] = event{outcome: "delivered"}
		}},
		"failed and processed": {untrue, "said to have failed", func(ev *evidence) {
			ev.tables["pg"].events["pg/send/1"] = event{outcome: "failed"}
			ev.tables["pg"].letters[2].resolved = false
		}},
		"processed and not claimed":   {untrue, "is not in the table", func(ev *evidence) { delete(ev.tables["pg"].events, "pg/send/1") }},
		"unfinished":                  {untrue, "for good", func(ev *evidence) { ev.tables["pg"].events["pg/send/4"] = event{unfinished: true} }},
		"in doubt without a letter":   {untrue, `"pg/send/4"`, func(ev *evidence) { ev.tables["pg"].letters[1].resolved = true }},
		"failed without a letter":     {untrue, `"pg/send/3"`, func(ev *evidence) { ev.tables["pg"].letters[0].event = "" }},
		"a send that is a bare claim": {untrue, "bare", func(ev *evidence) { ev.tables["pg"].events["pg/send/1"] = event{} }},
		"a key that succeeded twice": {ranTwice, "in run 7 and in run 11", func(ev *evidence) {
			ev.tables["pg"].runs = append(ev.tables["pg"].runs, runRow{11, "a", "k1", "succeeded", 80, 90})
		}},
		"a key that was run again": {ranTwice, "which had succeeded in run 7", func(ev *evidence) {
			ev.stamps["pg.a"] = append(ev.stamps["pg.a"], stamp{"4", begun, 9000, 9000, "11", "k1"})
		}},
		"a key that never succeeded": {neverRan, "key pg a k2", func(ev *evidence) { ev.kept.keys["pg a k2"] = false }},
		"a tick that is said to be done": {neverRan, "tick of pg", func(ev *evidence) {
			ev.kept.ticks[0].from, ev.kept.ticks[0].to = time.Unix(61, 0).Add(time.Minute), time.Unix(62, 0).Add(time.Minute)
		}},
		"a row that was never sent": {lost, "outbox-3", func(ev *evidence) { ev.requests = ev.requests[:9] }},
		"a row that is not marked":  {lost, "not marked", func(ev *evidence) { ev.tables["pg"].outbox[1].sent = false }},
		"a row that is gone":        {lost, "row 4", func(ev *evidence) { ev.kept.rows["pg"] = append(ev.kept.rows["pg"], added{4, "k"}) }},
		"rows in another order":     {outOfOrder, "outbox-2 came", func(ev *evidence) { ev.requests[7].At = 6 }},
		"a process that is left":    {leaked, "process 1", func(ev *evidence) { ev.left = []string{"process 1"} }},
		"a crash":                   {crashed, "process 2", func(ev *evidence) { ev.kept.crashes = []string{"process 2"} }},
	} {
		t.Run(name, func(t *testing.T) {
			ev := whole()
			c.spoil(ev)
			found := ev.check()
			if len(found[c.counter]) != 1 || !strings.Contains(found[c.counter][0], c.names) {
				t.Errorf("%s: %q, and not one with %q", counters[c.counter], found[c.counter], c.names)
			}
			if found.count() != len(found[c.counter]) {
				t.Errorf("it found more: %q", found)
			}
		})
	}
}
