package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

var at = time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC)

// ran is a run that began so long before the report.
func ran(id int64, lock string, ago time.Duration, outcome runner.RunOutcome, took time.Duration) runner.PastRun {
	r := runner.PastRun{ID: id, Lock: runner.LockID{Name: lock}, Host: "host", PID: 7, StartedAt: at.Add(-ago), Outcome: outcome}
	if outcome != runner.RunRunning && outcome != runner.RunUnknown {
		r.FinishedAt, r.Took = r.StartedAt.Add(took), took
	}
	return r
}

// statusOf is the status of a store with these runs, latest first.
func statusOf(runs ...runner.PastRun) runner.Status {
	s := runner.Status{At: at}
	seen := map[string]bool{}
	for _, r := range runs {
		if !seen[r.Lock.Name] {
			seen[r.Lock.Name] = true
			s.Locks = append(s.Locks, runner.LockState{Lock: r.Lock, Last: r})
		}
	}
	return s
}

func reportOf(t *testing.T, s runner.Status, runs ...runner.PastRun) *Report {
	t.Helper()
	r := New(s, 7*day)
	for _, run := range runs {
		if err := r.AddRun(run); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func pageOf(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestVerdict_SaysWhetherLastNightWasGood(t *testing.T) {
	daily := func(from int) (runs []runner.PastRun) {
		for d := from; d < from+5; d++ {
			runs = append(runs, ran(int64(100-d), "nightly", time.Duration(d)*day+3*time.Hour, runner.RunSucceeded, time.Minute))
		}
		return runs
	}
	failed := append([]runner.PastRun{ran(200, "nightly", time.Hour, runner.RunFailed, time.Second)}, daily(1)...)
	for name, c := range map[string]struct {
		runs                 []runner.PastRun
		needs                []Need
		tone, headline, lead string
		look                 int
	}{
		"empty":  {nil, nil, "look", "Nothing has run yet", "No run began in the last 24 hours.", 0},
		"good":   {daily(0), nil, "good", "All is well", "In the last 24 hours: 1 run, and all succeeded.", 0},
		"failed": {failed, nil, "look", "Nothing needs a person, but have a look", "In the last 24 hours: 1 run. 1 failed.", 0},
		"needs":  {daily(0), []Need{{"dead letters: 2", "look"}}, "bad", "1 thing needs a person", "In the last 24 hours: 1 run, and all succeeded.", 0},
		"late":   {daily(2), nil, "look", "Nothing needs a person, but have a look", "No run began in the last 24 hours.", 1},
		"going on": {append([]runner.PastRun{ran(200, "nightly", time.Hour, runner.RunRunning, 0)}, daily(1)...), nil,
			"good", "All is well", "In the last 24 hours: 1 run. 1 running.", 0},
	} {
		r := reportOf(t, statusOf(c.runs...), c.runs...)
		r.Needs = c.needs
		v := r.verdict(r.sorted())
		if v.tone != c.tone || v.headline != c.headline || v.lead != c.lead || len(v.look) != c.look {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A job that a person starts now and then, or in bursts, is never late.
func TestLate_WhenRunsHaveNoRhythm_IsNeverSaid(t *testing.T) {
	for name, ago := range map[string][]time.Duration{
		"few":       {50 * time.Hour, 51 * time.Hour, 52 * time.Hour},
		"burst":     {50 * time.Hour, 50*time.Hour + time.Second, 50*time.Hour + 2*time.Second, 50*time.Hour + 3*time.Second},
		"irregular": {50 * time.Hour, 51 * time.Hour, 52 * time.Hour, 53 * time.Hour, 120 * time.Hour},
		"in time":   {90 * time.Minute, 150 * time.Minute, 210 * time.Minute, 270 * time.Minute},
	} {
		var runs []runner.PastRun
		for i, a := range ago {
			runs = append(runs, ran(int64(50-i), "job", a, runner.RunSucceeded, time.Second))
		}
		r := reportOf(t, statusOf(runs...), runs...)
		if look := r.worthALook(r.sorted()); len(look) > 0 {
			t.Errorf("%s: %q", name, look)
		}
	}
}

// However much there is, the page is bounded, says what it leaves out, and its
// figures count all.
func TestReport_WhenThereAre100000Runs_IsBoundedAndItsFiguresExact(t *testing.T) {
	const runs, locks = 100_000, 2000
	var all []runner.PastRun
	for i := range runs {
		outcome := runner.RunSucceeded
		if i%10 == 3 {
			outcome = runner.RunFailed
		}
		all = append(all, ran(int64(runs-i), fmt.Sprintf("lock %d", i%locks), time.Duration(i)*7*day/runs, outcome, time.Duration(i%90)*time.Second))
	}
	begin := time.Now()
	r := reportOf(t, statusOf(all...), all...)
	for i := range 10_000 {
		_ = r.AddDeadLetter(runner.DeadLetter{ID: int64(i), LastError: "it failed", FailedAt: at})
		_ = r.AddDoubt(runner.Claim{ID: "event"})
	}
	page := pageOf(t, r)
	took := time.Since(begin)
	t.Logf("%d bytes in %v", len(page), took)
	if len(page) > 4<<20 || took > 30*time.Second {
		t.Errorf("the page has %d bytes, after %v", len(page), took)
	}
	for what, c := range map[string][2]int{
		"charts":         {strings.Count(page, `role="list"`), MostCharts},
		"marks":          {strings.Count(page, `role="listitem"`), MostCharts * 50}, // runs of 10 hours apart are in bins of their own
		"rows":           {strings.Count(page, "<tr>"), MostLocks + 4*MostRows + 8}, // heads, the rest and the sum
		"failed, by all": {r.all.by[1], runs / 10},
	} {
		if c[0] > c[1] || what == "failed, by all" && c[0] != c[1] {
			t.Errorf("%s: %d of %d", what, c[0], c[1])
		}
	}
	for _, want := range []string{
		`<th scope="row">All</th><td class="r">100000</td><td class="r">90000</td>`,
		`<i>all other locks</i></th><td class="r">50000</td>`,
		"the latest 250 of 100000", "the latest 250 of 10000", "940 more locks have only their figures",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}
