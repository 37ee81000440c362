package cmd_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// restartsVariable is how many restarts the test makes; scripts/restarts sets it.
const restartsVariable = "ONCECTL_TEST_RESTARTS"

// vigilant is a job that claims until the file end.RUN is there, and finds out
// whether another job is at work. It puts its pid into the file owner, from
// which only another job takes it: a job that finds there one that is neither
// paused nor dead, or that goes on after another has begun, is one of two at
// once. Each id is known to its job alone, so that each must be won.
const vigilant = `state() { s=$(cat /proc/$1/stat 2>/dev/null); s=${s##*) }; echo ${s%% *}; }
if o=$(cat owner 2>/dev/null); then
	case $(state $o) in ''|T|Z|X) ;; *) echo "$$ began while $o was at work" >>overlaps;; esac
fi
echo $$ >owner.$$; mv owner.$$ owner
n=0; until [ -e end.$ONCECTL_RUN_ID ] || [ -e stop ]; do
	n=$((n+1)); id=job/$ONCECTL_RUN_ID/$n
	oncectl claim $id; case $? in 0) echo $id >>won;; *) echo "$id: $?" >>unclaimed;; esac
	[ "$(cat owner)" = $$ ] || echo "$$ went on beside $(cat owner)" >>overlaps
done
rm owner`

// contender runs the job again and again, and notes how each run ended.
const contender = `until [ -e stop ]; do
	oncectl run --lock nightly --wait 2m --store-wait 1m -v -- sh ./job; echo $? >>statuses
done`

func TestRun_WhenTheServerIsRestarted_NeverTwoJobsAtOnce(t *testing.T) {
	t.Parallel()
	restarts := 3
	if s := os.Getenv(restartsVariable); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", restartsVariable, err)
		}
		restarts = n
	}
	server := pgtest.Start(t)
	p := placeAt(t, server.URL(), "public")
	p.write("job", vigilant)
	contenders := []*process{p.loop(contender), p.loop(contender)}
	said := func() string { return contenders[0].err.String() + contenders[1].err.String() }
	defer p.write("stop", "")

	run := p.atWork(server, "")
	for i := range restarts {
		// The holder is mostly the first to have the lock again. In one restart
		// of three it is stopped, so that only its guard can pause the job, some
		// time after the server has forgotten the lock.
		holder := 0
		if i%3 == 1 {
			holder = oncectlOf(t, server, run)
			sendSignal(t, holder, syscall.SIGSTOP)
		}
		server.Stop(t, []string{"fast", "immediate"}[i%2])
		server.Up(t)
		// Whoever has the lock now, the job that it continued or another's.
		now := p.atWork(server, p.read("won"))
		t.Logf("restart %d: run %s, then %s", i+1, run, now)
		if holder != 0 {
			sendSignal(t, holder, syscall.SIGCONT)
			until(t, "the overtaken run ended", func() bool { return dead(holder) })
		}
		// The next restart is under another run.
		p.write("end."+now, "")
		until(t, "the next run", func() bool { run = p.atWork(server, p.read("won")); return run != now })
		if s := p.read("overlaps"); s != "" {
			t.Fatalf("restart %d: two jobs at once: %s\n%s", i+1, s, said())
		}
	}
	p.write("stop", "")
	for _, c := range contenders {
		c.ends(0)
	}
	if s := p.read("overlaps"); s != "" {
		t.Errorf("two jobs at once: %s", s)
	}
	for _, status := range strings.Fields(p.read("statuses")) {
		// 120 is the run whose paused job was overtaken, 125 one that lost the
		// lock while it waited for its predecessor.
		if status != "0" && status != "120" && status != "125" {
			t.Errorf("a run ended with %s\n%s", status, said())
		}
	}
	checkClaims(t, p, server)
}

// atWork waits until the run that had the lock last has won more than before,
// and returns its id.
func (p *place) atWork(server *pgtest.Server, before string) (run string) {
	p.t.Helper()
	until(p.t, "a job is at work", func() bool {
		won := strings.Fields(strings.TrimPrefix(p.read("won"), before))
		if len(won) == 0 {
			return false
		}
		last := pgtest.Query(p.t, server.URL(), "select max(id)::text from public.runs")
		run = strings.Split(won[len(won)-1], "/")[1]
		return run == last[0]
	})
	return run
}

// oncectlOf is the process that a run belongs to.
func oncectlOf(t *testing.T, server *pgtest.Server, run string) int {
	t.Helper()
	pid, err := strconv.Atoi(pgtest.Query(t, server.URL(), "select pid::text from public.runs where id = "+run)[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func sendSignal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("%v to %d: %v", sig, pid, err)
	}
}

// checkClaims looks whether the server knows of each claim that a job has won,
// also of one that it answered just before it was killed.
func checkClaims(t *testing.T, p *place, server *pgtest.Server) {
	t.Helper()
	known := map[string]bool{}
	for _, id := range pgtest.Query(t, server.URL(), "select event_id from public.processed_events") {
		known[id] = true
	}
	for _, id := range strings.Fields(p.read("won")) {
		if !known[id] {
			t.Errorf("%s was won, and the server does not know of it", id)
		}
	}
	if s := p.read("unclaimed"); s != "" {
		t.Errorf("jobs did not win ids that only they knew: %s", s)
	}
}
