package cmd_test

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the store's own driver, to look into its file

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// The same event again and again: one message.

// eachWay runs a test on both stores, with calls that are on their own and with
// calls inside one run.
func eachWay(t *testing.T, test func(*testing.T, *place)) {
	t.Run("alone", func(t *testing.T) { eachStore(t, test) })
	t.Run("run", func(t *testing.T) {
		eachStore(t, func(t *testing.T, p *place) { test(t, p.inside()) })
	})
}

// inside is a place inside a run, which ends with the test.
func (p *place) inside(flags ...string) *place {
	p.t.Helper()
	args := append([]string{"run", "--lock", "sends"}, flags...)
	c := p.command(append(args, "--", "sh", "-c", `echo "at $ONCECTL_SOCKET."; cat`)...)
	in, err := c.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	run := p.startCommand(c)
	run.says(".\n")
	p.t.Cleanup(func() {
		in.Close() // cat ends, and the run with it
		run.ends(0)
	})
	_, socket, _ := strings.Cut(strings.TrimSuffix(run.out.String(), ".\n"), "at ")
	return p.with("ONCECTL_SOCKET=" + socket)
}

// isPostgres tells the stores apart.
func (p *place) isPostgres() (url, schema string, ok bool) {
	for _, kv := range p.env {
		if v, found := strings.CutPrefix(kv, "ONCECTL_DATABASE_URL="); found {
			url = v
		}
		if v, found := strings.CutPrefix(kv, "ONCECTL_SCHEMA="); found {
			schema = v
		}
	}
	return url, schema, url != ""
}

// query asks the store itself, which is the same place inside a run: {s} stands
// for the schema, with its dot. The first column of all rows comes back.
func (p *place) query(query string) []string {
	p.t.Helper()
	if url, schema, ok := p.isPostgres(); ok {
		return pgtest.Query(p.t, url, strings.ReplaceAll(query, "{s}", schema+"."))
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(p.dir, "state", "oncectl.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		p.t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(strings.ReplaceAll(query, "{s}", ""))
	if err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			p.t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		p.t.Fatal(err)
	}
	return all
}

// expire lets the time of all unfinished claims be over.
func (p *place) expire() {
	p.t.Helper()
	past := `'2000-01-01T00:00:00.000Z'`
	p.query(`update {s}processed_events set expires_at = ` + past + ` where outcome is null and expires_at is not null returning event_id`)
}

func TestSend_WhenTwiceInARow_OneMessage(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, p *place) {
		v := newReceiver(t, nil)
		for range 2 {
			pr := p.start("send", "--id", "invoice/4711", "--url", v.URL, "--json", `{"total":12}`).ends(0)
			if s := pr.out.String() + withoutNotice(pr.err.String()); s != "" {
				t.Errorf("it was not quiet: %q", s)
			}
		}
		v.wantOne(t, "invoice/4711")
	})
}

func TestSend_WhenManyAtOnce_OneMessage(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"two": 2, "thirty": 30} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, p *place) {
				// The receiver answers when the others have ended, so that no
				// call can come after the outcome is known.
				rest := make(chan struct{})
				v := newReceiver(t, func(w http.ResponseWriter, _ request) { <-rest })
				var all []*process
				for range n {
					all = append(all, p.start("send", "--id", "invoice/4711", "--url", v.URL, "-d", "total=12"))
				}
				until(t, "all but one ended", func() bool { return ended(all) == n-1 })
				close(rest)
				for _, pr := range all {
					pr.ends(0)
					if s := pr.out.String() + withoutNotice(pr.err.String()); s != "" {
						t.Errorf("it was not quiet: %q", s)
					}
				}
				v.wantOne(t, "invoice/4711")
			})
		})
	}
}

// Whoever comes second, while the first is under way or after it, is told.
func TestSend_WhenTheSameIDHasAnotherPayload_IsRefused(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, p *place) {
		rest := make(chan struct{})
		v := newReceiver(t, func(w http.ResponseWriter, _ request) { <-rest })
		both := []*process{
			p.start("send", "--id", "invoice/4711", "--url", v.URL, "-d", "total=12"),
			p.start("send", "--id", "invoice/4711", "--url", v.URL, "-d", "total=13"),
		}
		until(t, "one was refused", func() bool { return ended(both) == 1 })
		close(rest)
		count := map[int]int{}
		for _, pr := range both {
			count[pr.wait()]++
		}
		if count[0] != 1 || count[2] != 1 {
			t.Errorf("statuses: %v", count)
		}
		v.wantOne(t, "invoice/4711")
		third := p.start("send", "--id", "invoice/4711", "--url", v.URL, "-d", "total=14").ends(2)
		third.complains("another payload")
		v.wantOne(t, "invoice/4711")
	})
}

// A bare claim says that somebody does the event. In one run that is us.
func TestSend_WhenClaimedBefore_IsAdoptedInTheRunOnly(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, p *place) {
		v := newReceiver(t, nil)
		run := p.inside()
		run.start("claim", "invoice/1").ends(0)
		run.start("send", "--id", "invoice/1", "--url", v.URL, "-d", "x").ends(0)
		v.wantOne(t, "invoice/1")
		run.start("send", "--id", "invoice/1", "--url", v.URL, "-d", "x").ends(0)

		p.start("claim", "invoice/2").ends(0)
		p.start("send", "--id", "invoice/2", "--url", v.URL, "-d", "x").ends(2).complains("claimed by")
		run.start("send", "--id", "invoice/2", "--url", v.URL, "-d", "x").ends(2).complains("claimed by")
		run.start("claim", "invoice/3").ends(0)
		p.start("send", "--id", "invoice/3", "--url", v.URL, "-d", "x").ends(2).complains("claimed by")
		v.wantOne(t, "invoice/1")
	})
}

// The body is the same at each try, whatever it is and wherever it comes from.
func TestSend_WhenTriedAgain_TheBodyIsTheSame(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef\x00\xff\n\r", 5<<20/20)
	for _, c := range []struct{ name, body, arg string }{
		{"none", "", ""},
		{"empty", "", "-d"},
		{"file", large, "-d@body"},
		{"stdin", large, "-d@-"},
		{"text", "@not a file", "-d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, p *place) {
				v := newReceiver(t, func(w http.ResponseWriter, r request) {
					if r.nth < 3 {
						w.Header().Set("Retry-After", "0")
						w.WriteHeader(http.StatusTooManyRequests)
					}
				})
				args := []string{"send", "--id", "report", "--url", v.URL, "--backoff", "10ms"}
				body := c.body
				switch c.arg {
				case "-d":
					body = strings.TrimPrefix(body, "@")
					args = append(args, "-d", body)
				case "":
				default:
					p.write("body", body)
					args = append(args, c.arg)
				}
				cmd := p.command(args...)
				cmd.Stdin = strings.NewReader(body)
				p.startCommand(cmd).ends(0)
				got := v.requests()
				if len(got) != 3 {
					t.Fatalf("%d requests came", len(got))
				}
				for _, r := range got {
					if r.hash != sha(body) || r.header.Get("Content-Length") != strconv.Itoa(len(body)) || r.id != "report" {
						t.Errorf("it was sent as %q with hash %s, not %s, and %v", r.id, r.hash, sha(body), r.header)
					}
				}
			})
		})
	}
}
