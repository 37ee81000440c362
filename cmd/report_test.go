package cmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// hostileLock is a name that a page must not take for markup, in two directions.
const hostileLock = "<script>document.title='owned'</script> \"'& \u202eלילה"

// runEveryWay makes runs that end in every way, and leaves one that goes on.
func (p *place) runEveryWay(t *testing.T) {
	p.loseALock(t)
	for range 3 {
		p.start("run", "--lock", "nightly", "--", "true").ends(0)
	}
	p.start("run", "--lock", "nightly", "--once", "key <1>", "--", "true").ends(0)
	p.start("run", "--lock", hostileLock, "--", "sh", "-c", "echo TOPSECRET >&2; exit 3").ends(3)
	p.start("run", "--lock", "slow", "--timeout", "50ms", "--", "sleep", "300").ends(124)
	stopped := p.start("run", "--lock", "stopped", "--", "sh", "-c", "echo up; exec sleep 300")
	stopped.says("up")
	stopped.signal(syscall.SIGTERM)
	stopped.wait()
	killed := p.start("run", "--lock", "killed", "--", "sh", "-c", "echo up; exec sleep 300")
	killed.says("up")
	killed.signal(syscall.SIGKILL)
	killed.wait()
	p.start("run", "--lock", "going on", "--", "sh", "-c", "echo up; exec sleep 300").says("up")
	until(t, "the killed run's lock is free", func() bool {
		pr := p.start("runs", "--outcome", "unknown")
		pr.ends(0)
		return strings.Contains(pr.out.String(), "killed")
	})
}

// loseALock lets a run lose its lock: its session ends, or its file is removed.
// In a store in a file there must be no other lock yet.
func (p *place) loseALock(t *testing.T) {
	lost := p.start("run", "--lock", "lost "+filepath.Base(p.dir), "--on-lock-loss", "stop", "--kill-after", "1s", "--", "sh", "-c", "echo up; exec sleep 300")
	lost.says("up")
	if url, ok := strings.CutPrefix(p.env[0], "ONCECTL_DATABASE_URL="); ok {
		schema := strings.TrimPrefix(p.env[1], "ONCECTL_SCHEMA=")
		pgtest.Exec(t, url, "select pg_terminate_backend(l.pid) from pg_locks l, "+schema+`.runs r where locktype = 'advisory' and granted
			and classid::bigint = (lock_key >> 32) & 4294967295 and objid::bigint = lock_key & 4294967295`)
	} else {
		files, err := filepath.Glob(p.path("state/oncectl.db-locks/*.lock"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if filepath.Base(f) != "tables.lock" {
				if err := os.Remove(f); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	lost.ends(120)
}

// shownRun is a run as 'runs -o json' has it.
type shownRun struct {
	ID                  int64
	Lock, Host, Outcome string
	Key                 *string
	PID                 int
	StartedAt           string   `json:"started_at"`
	ExitCode            *int     `json:"exit_code"`
	DurationSeconds     *float64 `json:"duration_seconds"`
}

func (p *place) runsAsJSON(t *testing.T) (runs []shownRun) {
	t.Helper()
	out := p.start("runs", "--since", "7d", "--limit", "0", "-o", "json").ends(0).out.String()
	if err := json.Unmarshal([]byte(out), &runs); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return runs
}

// The page in a real browser: nothing is loaded, nothing complains, and it shows
// what the other commands tell.
func TestReport_WhenOpenedInABrowser_ShowsWhatTheStoreHas(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		b := openBrowser(t)
		p.runEveryWay(t)
		p.start("claim", "--expires", "1ms", "event <b>").ends(0)
		until(t, "the claim has expired", func() bool {
			return strings.Contains(p.start("claims", "--in-doubt").ends(0).out.String(), "event <b>")
		})
		p.start("outbox", "add", "--topic", "orders", "-d", `{"secret":"TOPSECRET"}`).ends(0)
		if out := p.start("report", "-o", "page.html").ends(0); out.out.String()+strings.ReplaceAll(out.err.String(), "\n", "") != "" {
			t.Errorf("report says %q %q", out.out.String(), out.err.String())
		}
		if page := p.read("page.html"); strings.Contains(page, "TOPSECRET") {
			t.Error("a secret is on the page")
		}
		url := "file://" + p.path("page.html")
		b.open(url)
		checkRows(t, b, p.runsAsJSON(t))
		checkFigures(t, b, p.runsAsJSON(t))
		checkNeeds(t, b, p)
		checkAccess(t, b)
		if troubles := b.troubles(url); len(troubles) > 0 {
			t.Errorf("the page is not quiet: %q", troubles)
		}
	})
}

// rows are the texts of a table's cells.
func (b *browser) rows(section string) (rows [][]string) {
	b.t.Helper()
	b.eval(`[...document.querySelectorAll('#`+section+` tbody tr, #`+section+` tfoot tr')].map(r => [...r.cells].map(c => c.textContent))`, &rows)
	return rows
}

// checkRows compares the table of the latest runs with 'runs -o json'.
func checkRows(t *testing.T, b *browser, runs []shownRun) {
	t.Helper()
	rows := b.rows("runs")
	if len(rows) != len(runs) || len(rows) != 10 {
		t.Fatalf("%d rows for %d runs", len(rows), len(runs))
	}
	for i, r := range runs {
		key, exit := "–", "–"
		if r.Key != nil {
			key = *r.Key
		}
		if r.ExitCode != nil {
			exit = strconv.Itoa(*r.ExitCode)
		}
		want := []string{strconv.FormatInt(r.ID, 10), r.Lock, r.StartedAt[:19] + "Z", rows[i][3], strings.ReplaceAll(r.Outcome, "_", " "), exit, r.Host + "/" + strconv.Itoa(r.PID), key}
		if !slices.Equal(rows[i], want) {
			t.Errorf("a row is %q, want %q", rows[i], want)
		}
		if (r.DurationSeconds == nil) != (rows[i][3] == "–") {
			t.Errorf("run %d took %s", r.ID, rows[i][3])
		}
	}
	if bad := b.rows("bad"); len(bad) != 5 {
		t.Errorf("runs that did not succeed: %q", bad)
	}
}

// checkFigures counts the runs of each lock and outcome again.
func checkFigures(t *testing.T, b *browser, runs []shownRun) {
	t.Helper()
	outcomes := []string{"succeeded", "failed", "timed_out", "stopped", "lost", "running", "unknown"}
	counts := map[string][]int{}
	for _, r := range runs {
		for _, lock := range []string{r.Lock, "All"} {
			if counts[lock] == nil {
				counts[lock] = make([]int, 1+len(outcomes))
			}
			counts[lock][0]++
			counts[lock][1+slices.Index(outcomes, r.Outcome)]++
		}
	}
	rows := b.rows("locks")
	if len(rows) != len(counts) {
		t.Errorf("%d rows of locks, want %d", len(rows), len(counts))
	}
	for _, row := range rows {
		for i, want := range counts[row[0]] {
			if row[1+i] != strconv.Itoa(want) {
				t.Errorf("lock %q: figure %d is %s, want %d", row[0], i, row[1+i], want)
			}
		}
	}
	for place, n := range counts["All"] {
		if n == 0 {
			t.Errorf("no run has outcome %d: the test shows nothing of it", place)
		}
	}
}

// checkNeeds compares the verdict with 'status --check'.
func checkNeeds(t *testing.T, b *browser, p *place) {
	t.Helper()
	var needs []string
	b.eval(`[...document.querySelectorAll('.needs strong')].map(e => e.textContent)`, &needs)
	check := strings.Split(strings.TrimSuffix(p.start("status", "--check").ends(1).out.String(), "\n"), "\n")
	if len(needs) != len(check) {
		t.Fatalf("the page has %q, status --check %q", needs, check)
	}
	for i := range needs {
		if !strings.HasPrefix(check[i], needs[i]+": ") {
			t.Errorf("the page has %q, status --check %q", needs[i], check[i])
		}
	}
	for section, want := range map[string]string{"letters": hostileLock, "doubt": "event <b>", "now": "going on"} {
		if rows := b.rows(section); !slices.ContainsFunc(rows, func(r []string) bool { return slices.Contains(r, want) }) {
			t.Errorf("%s: no %q in %q", section, want, rows)
		}
	}
	var title string
	if b.eval("document.title", &title); !strings.HasPrefix(title, "3 things need a person") {
		t.Errorf("the title is %q", title)
	}
}
