package cmd_test

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// Behind a pooler, where a session lock would exclude nobody.

// pooledPlace is a place whose store is reached through a PgBouncer of its own.
type pooledPlace struct {
	*place
	direct, schema string
}

func newPooledPlace(t *testing.T, mode string, settings ...string) *pooledPlace {
	url, schema := pgtest.Schema(t)
	return &pooledPlace{placeAt(t, pgtest.Bouncer(t, url, mode, settings...), schema), url, schema}
}

// eachPool runs a test behind both modes that can hold a lock.
func eachPool(t *testing.T, test func(*testing.T, *pooledPlace)) {
	for _, mode := range []string{"transaction", "session"} {
		t.Run(mode, func(t *testing.T) { t.Parallel(); test(t, newPooledPlace(t, mode)) })
	}
}

// holders lists the server processes that have a lock.
func (p *pooledPlace) holders(lock string) []string {
	key := uint64(runner.LockKey(p.schema, lock))
	return pgtest.Query(p.t, p.direct, fmt.Sprintf(
		"select pid::text from pg_locks where locktype = 'advisory' and granted and classid = %d and objid = %d", key>>32, key&0xffffffff))
}

// open lists what the runs of a lock have under way in the server, which others
// use as well: the lock's name is to be the test's own.
func (p *pooledPlace) open(lock string) []string {
	return pgtest.Query(p.t, p.direct, fmt.Sprintf(
		"select pid || ' ' || state || ': ' || query from pg_stat_activity where application_name = 'oncectl %s' and xact_start is not null", lock))
}

// loop is a shell's loop of oncectl, with its path and environment.
func (p *place) loop(script string) *process {
	c := exec.Command("sh", "-c", script)
	c.Dir, c.Env = p.dir, p.environ()
	return p.startCommand(c)
}

func TestRun_WhenTwelveStartBehindAPooler_OneRuns(t *testing.T) {
	eachPool(t, func(t *testing.T, p *pooledPlace) {
		p.oneRuns(12, "nightly")
		if left := p.holders("nightly"); len(left) > 0 {
			t.Errorf("the lock is still held by %q", left)
		}
	})
}

// Each of 100 ids is claimed twice, in a run and alone, by four at a time: one
// of the two wins, and nothing else is said.
func TestClaim_When200ComeThroughAPooler_EachIsWonOnce(t *testing.T) {
	eachPool(t, func(t *testing.T, p *pooledPlace) {
		claims := func(first, last int) string {
			return fmt.Sprintf("for i in $(seq %d %d); do oncectl claim event/$i; echo $? event/$i; done", first, last)
		}
		low, high := "low "+p.schema, "high "+p.schema
		all := []*process{
			p.start("run", "--lock", low, "--", "sh", "-c", claims(1, 50)),
			p.start("run", "--lock", high, "--", "sh", "-c", claims(51, 100)),
			p.loop(claims(1, 50)), p.loop(claims(51, 100)),
		}
		answers := map[string]int{}
		for _, pr := range all {
			if pr.ends(0); pr.err.String() != "" {
				t.Errorf("it was not quiet: %q", pr.err.String())
			}
			for line := range strings.Lines(pr.out.String()) {
				answers[strings.TrimSpace(line)]++
			}
		}
		for i := 1; i <= 100; i++ {
			if won, lost := answers[fmt.Sprintf("0 event/%d", i)], answers[fmt.Sprintf("1 event/%d", i)]; won != 1 || lost != 1 {
				t.Errorf("event/%d was won %d times, and %d times not", i, won, lost)
			}
		}
		for _, lock := range []string{low, high} {
			until(t, "nothing is left of lock "+lock, func() bool { return len(p.holders(lock))+len(p.open(lock)) == 0 })
		}
	})
}

func TestRun_WhenKilledBehindAPooler_NothingIsLeft(t *testing.T) {
	eachPool(t, func(t *testing.T, p *pooledPlace) {
		lock := "killed " + p.schema
		holder := p.start("run", "--lock", lock, "--", "sh", "-c", "echo $$ >pids; oncectl claim event/1; echo up; sleep 300; true")
		holder.says("up")
		if len(p.holders(lock)) != 1 || len(p.open(lock)) != 1 {
			t.Fatalf("a holder shows as %q and %q", p.holders(lock), p.open(lock))
		}
		next := p.start("run", "--lock", lock, "--wait", "50s", "--", "sh", "-c", livingOf+`; echo "left:$left"`)
		holder.signal(syscall.SIGKILL)
		holder.ends(137)
		until(t, "the job is dead", func() bool { return dead(p.pids()[0]) })
		if next.ends(0); next.out.String() != "left:\n" {
			t.Errorf("the next run found %q", next.out.String())
		}
		until(t, "nobody has the lock", func() bool { return len(p.holders(lock)) == 0 })
		until(t, "no transaction is open", func() bool { return len(p.open(lock)) == 0 })
	})
}

// A run needs two server connections. Where the pool has fewer to give, it says
// so before it starts its job.
func TestRun_WhenThePoolHasOneConnection_ItSaysSo(t *testing.T) {
	for _, mode := range []string{"transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPooledPlace(t, mode, "default_pool_size = 1")
			// The tables are made over one connection, which is there.
			p.start("claim", "event/1").ends(0)
			pr := p.start("run", "--lock", "nightly", "--", "touch", "ran").ends(125)
			checkPoolError(t, pr)
			if p.exists("ran") {
				t.Error("the job was started")
			}
			if left := p.holders("nightly"); len(left) > 0 {
				t.Errorf("the lock is still held by %q", left)
			}
			// The pool is as good as before.
			p.start("claim", "event/2").ends(0)
		})
	}
}

// Two locks use up a pool of two. Each run's claim works or says why not; none
// waits for the other for ever.
func TestRun_WhenThePoolIsTooSmallForTwoLocks_NoneHangs(t *testing.T) {
	for _, mode := range []string{"transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPooledPlace(t, mode, "default_pool_size = 2")
			p.start("claim", "event/0").ends(0)
			var all []*process
			for i := range 2 {
				all = append(all, p.start("run", "--lock", fmt.Sprint("lock/", i), "--", "sh", "-c",
					fmt.Sprintf("touch in%d; oncectl claim event/%d; s=$?; [ $s = 0 ] && touch won%d; exit $s", i, i+1, i)))
			}
			for i, pr := range all {
				switch pr.wait() {
				case 0:
					if !p.exists(fmt.Sprint("won", i)) {
						t.Errorf("run %d ended with 0 without its claim", i)
					}
				case 125, 2:
					checkPoolError(t, pr)
				default:
					pr.ends(0)
				}
			}
			p.start("run", "--lock", "lock/0", "--", "true").ends(0)
		})
	}
}

// checkPoolError wants one line that names what is too small.
func checkPoolError(t *testing.T, pr *process) {
	t.Helper()
	s := pr.err.String()
	if !strings.Contains(s, "default_pool_size") || !strings.HasPrefix(s, "oncectl: ") || strings.Count(s, "\n") != 1 {
		t.Errorf("it does not say what is too small, in one line: %q", s)
	}
}
