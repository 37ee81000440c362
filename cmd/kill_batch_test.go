package cmd_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killsVariable is how many batches the test kills on each store, alone and in
// a run; scripts/kill-batch sets it.
const killsVariable = "ONCECTL_TEST_KILLS"

// A batch is killed and begun again, killed and begun again. At the receiver
// nothing is twice; when it has run to its end everything was delivered or is
// named as being in doubt; and each kill left no more in doubt than were in
// flight.
func TestBatch_WhenKilledAtRandom_NothingIsTwiceAndNothingForgotten(t *testing.T) {
	t.Parallel()
	kills := 20
	if s := os.Getenv(killsVariable); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", killsVariable, err)
		}
		kills = n
	}
	eachWay(t, func(t *testing.T, p *place) {
		p.start("claim", "first").ends(0) // makes the store, into which the test looks
		doubt := 0
		for done := 0; done < kills; done += killsOfOne {
			doubt += killBatch(t, p, done, min(killsOfOne, kills-done))
		}
		t.Logf("%d in doubt after %d kills", doubt, kills)
	})
}

const (
	killsOfOne      = 10 // of one batch
	killedLines     = 250
	killConcurrency = 4
)

// killBatch kills one batch so many times, looks at what came of it, and
// returns how many events are in doubt.
func killBatch(t *testing.T, p *place, name, kills int) (doubt int) {
	v := newReceiver(t, func(w http.ResponseWriter, _ request) {
		time.Sleep(time.Duration(rand.N(5)) * time.Millisecond) // answers come as they come
		w.WriteHeader(http.StatusNoContent)
	})
	var b strings.Builder
	for i := range killedLines {
		fmt.Fprintf(&b, `{"id":"batch/%d/%d","data":"x"}`+"\n", name, i)
	}
	start := func() *process {
		return p.batch(b.String(), "--url", v.URL, "--concurrency", strconv.Itoa(killConcurrency))
	}
	for range kills {
		pr := start()
		// Some requests after its start, or right then, and in the midst of
		// whatever it does about them.
		target := len(v.requests()) + rand.N(25)
		until(t, "so many came", func() bool { return len(v.requests()) >= target || ended([]*process{pr}) == 1 })
		time.Sleep(rand.N(10 * time.Millisecond))
		_ = pr.Process.Signal(syscall.SIGKILL) // it may have ended
		if got := pr.wait(); got > 1 && got != 137 {
			t.Fatalf("status %d, stderr %s", got, pr.err.String())
		}
		p.expire()
	}
	// The last claims of a killed batch may be made after its death, by a server
	// or a run that has its request already. They have not expired yet.
	var last *process
	for last = start(); strings.Contains(last.ends01().out.String(), `"being_sent"`); last = start() {
		p.expire()
	}
	return lookAfter(t, p, v, fmt.Sprintf("batch/%d/", name), results(t, last.out.String()))
}

// ends01 checks that all went well, but for what is in doubt.
func (pr *process) ends01() *process {
	pr.t.Helper()
	if got := pr.wait(); got > 1 {
		pr.t.Fatalf("status %d, stderr %s", got, pr.err.String())
	}
	return pr
}

func lookAfter(t *testing.T, p *place, v *receiver, prefix string, got map[string]result) (doubt int) {
	came := map[string]bool{}
	for _, r := range v.requests() {
		came[r.id] = true
	}
	v.eachOnce(t)
	letters := map[string]bool{}
	for _, l := range p.letters("--kind", "send") {
		letters[*l.EventID] = l.Certainty == "in_doubt"
	}
	claims := p.start("claims", "--in-doubt", "-o", "json", "--prefix", prefix).ends(0).out.String()
	for i := range killedLines {
		id := prefix + strconv.Itoa(i)
		switch got[id].Outcome {
		case "delivered":
			if !came[id] {
				t.Errorf("%q is said to be delivered and never came", id)
			}
		case "in_doubt":
			doubt++
			if !letters[id] || !strings.Contains(claims, `"`+id+`"`) {
				t.Errorf("%q is in doubt and not in the lists", id)
			}
		default:
			t.Errorf("%q: %+v", id, got[id])
		}
	}
	// Every process has a token of its own.
	for _, n := range p.query("select cast(count(*) as text) from {s}processed_events where outcome = 'in_doubt' group by token") {
		if n, err := strconv.Atoi(n); err != nil || n > killConcurrency {
			t.Errorf("one kill left %d in doubt", n)
		}
	}
	return doubt
}
