package cmd_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ping is what a monitor was told.
type ping struct{ method, path, rid, query, body string }

// monitor is a fake of a monitoring service.
type monitor struct {
	*httptest.Server
	mu  sync.Mutex
	got []ping
}

func newMonitor(t testing.TB, status int) *monitor {
	m := &monitor{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		m.got = append(m.got, ping{r.Method, r.URL.Path, r.URL.Query().Get("rid"), r.URL.Query().Get("create"), string(body)})
		m.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(m.Close)
	return m
}

// pings waits for nothing: a run ends after its last ping.
func (m *monitor) pings() []ping {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]ping{}, m.got...)
}

// twoPings are the pings of one run: its start, and its end at path.
func twoPings(t *testing.T, m *monitor, path string) ping {
	t.Helper()
	got := m.pings()
	if len(got) != 2 || got[0].path != "/secret/start" || got[1].path != path {
		t.Fatalf("pings %+v, want a start and %s", got, path)
	}
	if got[0].rid == "" || got[0].rid != got[1].rid || got[0].method != "POST" {
		t.Errorf("pings %+v are not of one run", got)
	}
	return got[1]
}

func TestPing_WhenTheJobSucceeds_TellsStartAndSuccess(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		m := newMonitor(t, 200)
		pr := p.start("run", "--lock", "nightly", "--ping", m.URL+"/secret/?create=1", "--", "sh", "-c", `printf 'a\0b\r'; echo to-err >&2`).ends(0)
		end := twoPings(t, m, "/secret/")
		if end.query != "1" || !strings.Contains(end.body, `lock "nightly"`) || !strings.Contains(end.body, "a\x00b\r") || !strings.Contains(end.body, "to-err") {
			t.Errorf("the last ping is %+v", end)
		}
		if pr.out.String() != "a\x00b\r" || !strings.HasSuffix(pr.err.String(), "to-err\n") {
			t.Errorf("stdout %q, stderr %q", pr.out.String(), pr.err.String())
		}
	})
}

func TestPing_WhenTheJobFails_TellsItsStatus(t *testing.T) {
	tests := map[string]struct {
		flags  []string
		script string
		status int
		path   string
		want   string
	}{
		"exit status":     {nil, "echo why; exit 3", 3, "/secret/3", "why"},
		"killed":          {nil, "kill -KILL $$", 137, "/secret/137", "killed by signal 9"},
		"timed out":       {[]string{"--timeout", "100ms"}, "exec sleep 60", 124, "/secret/124", "--timeout"},
		"held back":       {[]string{"--quiet-ok"}, "echo one; echo two >&2; exit 3", 3, "/secret/3", "one\ntwo\n"},
		"without output":  {[]string{"--no-ping-output"}, "echo why; exit 3", 3, "/secret/3", "exit status 3\n"},
		"only what is in": {nil, "yes | head -c 100000; echo end; exit 3", 3, "/secret/3", "y\nend\n"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, m := newPlace(t), newMonitor(t, 200)
			args := append([]string{"run", "--lock", "l", "--ping", m.URL + "/secret"}, c.flags...)
			p.start(append(args, "--", "sh", "-c", c.script)...).ends(c.status)
			end := twoPings(t, m, c.path)
			if !strings.Contains(end.body, c.want) || len(end.body) > 10_000 {
				t.Errorf("the last ping has %d bytes: %.200q", len(end.body), end.body)
			}
			if name == "without output" && strings.Contains(end.body, "why") {
				t.Errorf("the last ping is %q", end.body)
			}
		})
	}
}

func TestPing_WhenTheRunIsSkipped_TellsNothing(t *testing.T) {
	p, m := newPlace(t), newMonitor(t, 200)
	p.start("run", "--lock", "l", "--once", "k", "--", "true").ends(0)
	p.start("run", "--lock", "l", "--once", "k", "--ping", m.URL+"/secret", "--", "false").ends(0)
	p.start("run", "--lock", "l", "--", "oncectl", "run", "--lock", "l", "--ping", m.URL+"/secret", "--", "false").ends(0)
	if got := m.pings(); len(got) > 0 {
		t.Errorf("pings of skipped runs: %+v", got)
	}
}

func TestPing_WhenTheStoreIsAway_TellsThatTheJobDidNotRun(t *testing.T) {
	p, m := newPlace(t), newMonitor(t, 200)
	p.start("run", "--lock", "l", "--database-url", "postgres://me:hidden@127.0.0.1:1/x", "--store-wait", "10ms",
		"--ping", m.URL+"/secret", "--", "true").ends(125)
	got := m.pings()
	if len(got) != 1 || got[0].path != "/secret/125" || !strings.Contains(got[0].body, "127.0.0.1") || strings.Contains(got[0].body, "hidden") {
		t.Errorf("pings %+v", got)
	}
}

func TestPing_WhenItFails_TheJobsResultStands(t *testing.T) {
	p, m := newPlace(t), newMonitor(t, 404)
	p.write("url", m.URL+"/secret\n")
	p.start("claim", "x").ends(0) // the notice of a new store is said
	for want, script := range map[int]string{0: "true", 3: "exit 3"} {
		pr := p.start("run", "--lock", "l", "--ping-file", "url", "--", "sh", "-c", script).ends(want)
		if msg := pr.err.String(); strings.Count(msg, "\n") != 1 || !strings.Contains(msg, "404") || strings.Contains(msg, "secret") {
			t.Errorf("stderr %q", msg)
		}
	}
	pr := p.start("run", "--lock", "l", "--ping-file", p.path("none"), "--", "sh", "-c", "exit 4").ends(4)
	if msg := pr.err.String(); !strings.Contains(msg, "no such file") {
		t.Errorf("stderr %q", msg)
	}
	for _, flag := range []string{"--ping", "--ping-file"} {
		p.start("run", "--lock", "l", flag, "", "--", "true").ends(125).complains(flag + " is empty")
	}
	pr = p.start("run", "--lock", "l", "--ping", "hidden", "--", "true").ends(125)
	if msg := pr.err.String(); !strings.Contains(msg, "http") || strings.Contains(msg, "hidden") {
		t.Errorf("stderr %q", msg)
	}
}

// The URL is the monitor's password.
func TestPing_WhenTheURLIsAFlag_TheProcessListHasItNot(t *testing.T) {
	p, m := newPlace(t), newMonitor(t, 200)
	pr := p.start("run", "--lock", "l", "--ping", m.URL+"/secret", "--", "sh", "-c", "echo up; exec sleep 60")
	pr.says("up")
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pr.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	pr.signal(syscall.SIGTERM)
	pr.ends(143)
	if !strings.Contains(string(cmdline), "--ping") || strings.Contains(string(cmdline), "secret") {
		t.Errorf("the command line is %q", cmdline)
	}
}

// A monitor that takes requests and does not answer must not keep the job from
// starting, nor a run that was told to end.
func TestPing_WhenTheMonitorHangs_TheRunEndsSoon(t *testing.T) {
	hang := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(func() { close(hang); srv.Close() })
	p := newPlace(t)
	pr := p.start("run", "--lock", "l", "--ping", srv.URL, "--", "sh", "-c", "echo started; exec sleep 60")
	pr.says("started")
	pr.signal(syscall.SIGTERM)
	pr.ends(143)
	p.start("run", "--lock", "l", "--", "true").ends(0)
}
