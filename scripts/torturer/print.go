//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// shown is how many findings of a kind are printed in full.
const shown = 20

func (w *world) print(ev *evidence, found findings) {
	total := 0
	for _, n := range w.faults.counted.n {
		total += n
	}
	fmt.Printf("\nfaults: %d in %v (those of the receiver apart)\n", total, time.Since(w.began).Round(time.Second))
	for _, k := range allFaults {
		fmt.Printf("%8d  %s", w.faults.counted.n[k.name], k.name)
		if n := w.faults.withheld.n[k.name]; n > 0 {
			fmt.Printf(" (and %d without a target)", n)
		}
		fmt.Println()
	}
	table("answers of the receiver", w.answers.n)
	table("oncectl, by exit status", w.exits.n)
	for _, store := range []string{"pg", "local"} {
		events, runs, rows := map[string]int{}, map[string]int{}, map[string]int{}
		t := ev.tables[store]
		for id, s := range ev.kept.events {
			if s.store != store {
				continue
			}
			word := "never started"
			if e, has := t.events[id]; has {
				word = e.outcome
			}
			events[word]++
		}
		for _, r := range t.runs {
			runs[r.outcome]++
		}
		for _, r := range t.outbox {
			rows[fmt.Sprintf("sent %v", r.sent)]++
		}
		table(store+": events to be sent", events)
		table(store+": runs", runs)
		table(store+": rows of the outbox", rows)
		claims := 0
		for _, e := range t.events {
			if e.outcome == "" {
				claims++
			}
		}
		fmt.Printf("%s: %d bare claims\n", store, claims)
	}
	fmt.Println("\neach of these must be 0:")
	for i, name := range counters {
		fmt.Printf("%8d  %s\n", len(found[i]), name)
	}
	for i, all := range found {
		for n, s := range all {
			if n == shown {
				fmt.Printf("%s: and %d more\n", counters[i], len(all)-shown)
				break
			}
			fmt.Printf("%s: %s\n", counters[i], s)
		}
	}
}

func table(title string, n map[string]int) {
	fmt.Printf("%s:\n", title)
	for _, name := range slices.Sorted(maps.Keys(n)) {
		fmt.Printf("%8d  %s\n", n[name], name)
	}
}
