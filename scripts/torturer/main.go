//go:build linux

// Command torturer is scripts/torture: oncectl's commands on several hosts
// against one PostgreSQL and one SQLite store, faults without end, and a checker
// that says what was not kept.
//
// It wants namespaces of its own and root in them, as scripts/torture makes
// them. The same binary is the first process of each host (init) and the job of
// each lock (job).
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "job":
		os.Exit(jobMain(os.Args[2:]))
	case len(os.Args) > 2 && os.Args[1] == "init":
		fmt.Fprintln(os.Stderr, "init:", initMain(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(torture())
}

// torture is the whole: 0 if everything was kept, 1 if not, 2 if it could not
// be found out.
func torture() (status int) {
	minutes := flag.Float64("minutes", 10, "how long there are faults")
	seed := flag.Uint64("seed", uint64(time.Now().Unix()), "repeats the faults and what the actors do")
	dir := flag.String("dir", "", "folder that everything lives in")
	oncectl := flag.String("oncectl", "", "folder of the binary")
	flag.Parse()
	if *dir == "" || *oncectl == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "torturer is started by scripts/torture")
		return 2
	}
	fmt.Printf("seed %d, %v minutes\n", *seed, *minutes)
	t := &bench{}
	defer t.cleanUp()
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(gaveUp); ok {
				fmt.Fprintln(os.Stderr, "torture:", e)
				status = 2
				return
			}
			panic(r)
		}
	}()
	w := newWorld(t, *dir, *oncectl, *seed)
	w.live(time.Duration(*minutes * float64(time.Minute)))
	ev := w.gather()
	found := ev.check()
	w.print(ev, found)
	if found.count() > 0 {
		fmt.Println("kept:", filepath.Join(*dir, "evidence"))
		return 1
	}
	return 0
}

// live has actors and faults at work for so long, and then puts all in order.
func (w *world) live(d time.Duration) {
	w.startActors()
	f := newFaults(w)
	f.run(d)
	w.note("no more faults")
	f.heal()
	w.settle()
}
