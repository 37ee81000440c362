package cmd_test

import (
	"fmt"
	"strings"
	"testing"
)

// Many processes at once: the database decides who wins.

// oneRuns starts n runs of a lock and checks that one of them runs its job, and
// that none says anything.
func (p *place) oneRuns(n int, lock string) {
	p.t.Helper()
	// The job goes on until all others have ended, so that none of them can find
	// the lock free.
	var all []*process
	for range n {
		all = append(all, p.start("run", "--lock", lock, "--", "sh", "-c",
			"echo $$ >>ran; until [ -e stop ]; do sleep 0.05; done"))
	}
	until(p.t, "all but one ended", func() bool { return ended(all) == n-1 })
	p.write("stop", "")
	for _, pr := range all {
		pr.ends(0)
		said := pr.err.String()
		if _, _, postgres := p.isPostgres(); !postgres {
			said = withoutNotice(said)
		}
		if said = pr.out.String() + said; said != "" {
			p.t.Errorf("it was not quiet: %q", said)
		}
	}
	if n := strings.Count(p.read("ran"), "\n"); n != 1 {
		p.t.Errorf("%d ran", n)
	}
}

func TestRun_WhenTwentyStartAtOnce_OneRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) { p.oneRuns(20, "nightly") })
}

func TestClaim_WhenSixtyAtOnce_OneWins(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		var all []*process
		for range 60 {
			all = append(all, p.start("claim", "invoice/4711"))
		}
		count := map[int]int{}
		for _, pr := range all {
			count[pr.wait()]++
			if s := withoutNotice(pr.err.String()); s != "" {
				t.Errorf("it was not quiet: %q", s)
			}
		}
		if count[0] != 1 || count[1] != 59 {
			t.Errorf("statuses: %v", count)
		}
	})
}

func TestClaim_WhenEightStreamsHaveTheSameIDs_EachIsWonOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		const ids = 5000
		var forth, back strings.Builder
		for i := range ids {
			fmt.Fprintf(&forth, "event/%d\n", i)
			fmt.Fprintf(&back, "event/%d\n", ids-1-i)
		}
		var all []*process
		for i := range 8 {
			c := p.command("claim", "-")
			c.Stdin = strings.NewReader(forth.String())
			if i%2 == 1 { // the opposite order must not deadlock
				c.Stdin = strings.NewReader(back.String())
			}
			all = append(all, p.startCommand(c))
		}
		won := map[string]int{}
		for _, pr := range all {
			if got := pr.wait(); got > 1 {
				t.Errorf("status %d, stderr %q", got, pr.err.String())
			}
			for id := range strings.Lines(pr.out.String()) {
				won[id]++
			}
		}
		for id, n := range won {
			if n != 1 {
				t.Errorf("%q was won %d times", id, n)
			}
		}
		if len(won) != ids {
			t.Errorf("%d of %d were won", len(won), ids)
		}
	})
}

func TestStore_WhenFiftyUseAFreshOneAtOnce_NoneFails(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		var all []*process
		for i := range 50 {
			if i%2 == 0 {
				all = append(all, p.start("claim", fmt.Sprint("event/", i)))
			} else {
				all = append(all, p.start("run", "--lock", fmt.Sprint("lock/", i), "--", "oncectl", "claim", fmt.Sprint("event/", i)))
			}
		}
		notices := 0
		for _, pr := range all {
			pr.ends(0)
			if s := withoutNotice(pr.err.String()); s != "" {
				t.Errorf("it was not quiet: %q", s)
			} else if pr.err.String() != "" {
				notices++
			}
		}
		if want := len(p.env) % 2; notices != want { // the local store has one variable, and one notice
			t.Errorf("%d notices of a new store, not %d", notices, want)
		}
	})
}

// ended counts the processes that have ended.
func ended(all []*process) (n int) {
	for _, pr := range all {
		select {
		case <-pr.done:
			n++
		default:
		}
	}
	return n
}

// withoutNotice leaves out the one line that says that a store was created.
func withoutNotice(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if !strings.Contains(line, "created the local store") {
			b.WriteString(line)
		}
	}
	return b.String()
}
