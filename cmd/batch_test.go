package cmd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// result is a line that a batch prints.
type result struct {
	ID       string
	Line     int
	Outcome  string
	Status   int
	Attempts int
	Error    string
}

// results reads what a batch printed, by id or, of bad lines, by "line N".
func results(t testing.TB, out string) map[string]result {
	t.Helper()
	all := map[string]result{}
	for line := range strings.Lines(out) {
		var r result
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		name := r.ID
		if name == "" {
			name = fmt.Sprint("line ", r.Line)
		}
		if before, again := all[name]; again && before.Outcome != "being_sent" && r.Outcome != "being_sent" {
			t.Errorf("%q has two results: %+v, %+v", name, before, r)
		}
		all[name] = r
	}
	return all
}

// batch starts a batch of these lines.
func (p *place) batch(lines string, flags ...string) *process {
	p.t.Helper()
	c := p.command(append([]string{"send", "--batch"}, flags...)...)
	c.Stdin = strings.NewReader(lines)
	return p.startCommand(c)
}

func TestBatch_WhenLinesAreBad_NamesThemAndSendsTheOthers(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, p *place) {
		v, other := newReceiver(t, nil), newReceiver(t, nil)
		lines := []string{
			`{"id":"a","payload":{"n": 1.50,  "s":"\u00e4"}}`, // its bytes are kept
			`nonsense s3cret`,
			`{"payload":{}}`,
			``,
			`{"id":"b","data":"plain","url":"` + other.URL + `/x","headers":{"X-Batch":"yes","content-type":"text/plain"}}`,
			`{"id":"both","payload":1,"data":"2"}`,
			`{"id":"typo","paylaod":1}`,
			`{"id":"two","payload":1} {"id":"three"}`,
			"{\"id\":\"bad\\u0000id\"}",
			`{"id":"c"}`,
			`{"id":"host","url":"ftp://x"}`,
			`{"id":"last","payload":null}`, // without a newline
		}
		pr := p.batch(strings.Join(lines, "\n"), "--url", v.URL).ends(2)
		got := results(t, pr.out.String())
		for _, id := range []string{"a", "b", "c", "last"} {
			if r := got[id]; r.Outcome != "delivered" || r.Status != 204 || r.Attempts != 1 {
				t.Errorf("%q: %+v", id, r)
			}
		}
		for _, n := range []int{2, 3, 6, 7, 8, 9, 11} {
			if r := got[fmt.Sprint("line ", n)]; r.Outcome != "refused" || r.Error == "" {
				t.Errorf("line %d: %+v", n, r)
			}
			pr.complains(fmt.Sprintf("oncectl: line %d: ", n))
		}
		if strings.Contains(pr.err.String()+pr.out.String(), "s3cret") {
			t.Errorf("it repeats a bad line: %q", pr.err.String())
		}
		bodies := map[string]string{"a": `{"n": 1.50,  "s":"\u00e4"}`, "c": "", "last": "null"}
		for _, r := range v.requests() {
			if want, ok := bodies[r.id]; !ok || r.hash != sha(want) || (want != "") != (r.header.Get("Content-Type") == "application/json") {
				t.Errorf("%q came with hash %s and %v", r.id, r.hash, r.header)
			}
		}
		if n := v.eachOnce(t); n != 3 {
			t.Errorf("%d came", n)
		}
		other.wantOne(t, "b")
		r := other.requests()[0]
		if r.path != "/x" || r.hash != sha("plain") || r.header.Get("X-Batch") != "yes" || r.header.Get("Content-Type") != "text/plain" {
			t.Errorf("it came as %+v", r)
		}
	})
}

func TestBatch_WhenSomeAreNotDelivered_Ends1(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, p *place) {
		v := newReceiver(t, func(w http.ResponseWriter, r request) {
			switch r.id {
			case "rejected":
				w.WriteHeader(http.StatusBadRequest)
			case "doubtful":
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		lines := `{"id":"good","data":"1"}
{"id":"rejected","data":"2"}
{"id":"doubtful","data":"3"}`
		// A second batch sends again what surely was not delivered, and only that.
		for n := 1; n <= 2; n++ {
			got := results(t, p.batch(lines, "--url", v.URL).ends(1).out.String())
			for id, want := range map[string]string{"good": "delivered", "rejected": "failed", "doubtful": "in_doubt"} {
				if got[id].Outcome != want || want != "delivered" && got[id].Error == "" {
					t.Errorf("%q: %+v", id, got[id])
				}
			}
			if total := len(v.requests()); total != 2+n {
				t.Errorf("%d requests came", total)
			}
		}
		if all := p.letters(); len(all) != 2 {
			t.Errorf("dead letters: %+v", all)
		}
	})
}

// Within one batch, too, an id stands for one message.
func TestBatch_WhenAnIDComesTwice_IsSentOnce(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, p *place) {
		rest := make(chan struct{})
		v := newReceiver(t, func(http.ResponseWriter, request) { <-rest })
		pr := p.batch(`{"id":"a","data":"1"}
{"id":"a","data":"1"}
{"id":"a","data":"2"}`, "--url", v.URL)
		until(t, "the first is being sent", func() bool { return len(v.requests()) == 1 })
		close(rest)
		pr.ends(2)
		if n := strings.Count(pr.out.String(), `"outcome":"refused"`); n != 1 || !strings.Contains(pr.err.String(), "another payload") {
			t.Errorf("%d were refused: %s%s", n, pr.out.String(), pr.err.String())
		}
		v.wantOne(t, "a")
		if v.requests()[0].hash != sha("1") {
			t.Error("it was not the first")
		}
	})
}

// TERM: what is in flight is finished, what waits for its host is given back,
// and what was not taken is as if it had never been there.
func TestBatch_WhenTold_FinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			eachWay(t, func(t *testing.T, p *place) {
				rest := make(chan struct{})
				v := newReceiver(t, func(w http.ResponseWriter, r request) { <-rest })
				silent := newReceiver(t, func(w http.ResponseWriter, r request) {
					if r.nth == 1 {
						w.Header().Set("Retry-After", "200")
						w.WriteHeader(http.StatusTooManyRequests)
					}
				})
				var lines strings.Builder
				fmt.Fprintf(&lines, `{"id":"waits","data":"x","url":"%s"}`+"\n", silent.URL)
				for i := range 100 {
					fmt.Fprintf(&lines, `{"id":"event/%d","data":"x"}`+"\n", i)
				}
				pr := p.batch(lines.String(), "--url", v.URL, "--concurrency", "4")
				until(t, "three are in flight and one waits", func() bool {
					now, _ := v.inFlight()
					return now == 3 && len(silent.requests()) == 1 && !silent.requests()[0].ended.IsZero()
				})
				pr.signal(sig)
				until(t, "the one that waits is given back", func() bool { return strings.Contains(pr.out.String(), `"given_back"`) })
				close(rest)
				pr.ends(2).complains("interrupted")
				got := results(t, pr.out.String())
				if len(got) != 4 || got["waits"].Outcome != "given_back" {
					t.Errorf("results: %+v", got)
				}
				if n := v.eachOnce(t); n != 3 {
					t.Errorf("%d came", n)
				}
				claims := p.query("select event_id || ' ' || coalesce(outcome, 'none') from {s}processed_events")
				if s := fmt.Sprint(claims); len(claims) != 3 || strings.Count(s, "delivered") != 3 {
					t.Errorf("claims: %q", claims)
				}
				// The same again sends the rest.
				silentNow := newReceiver(t, nil)
				again := strings.Replace(lines.String(), silent.URL, silentNow.URL, 1)
				p.batch(again, "--url", v.URL).ends(0)
				if n := v.eachOnce(t); n != 100 {
					t.Errorf("%d came in the end", n)
				}
			})
		})
	}
}

// What cannot be finished in time is in doubt.
func TestBatch_WhenTheReceiverHangs_EndsAfterKillAfter(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, p *place) {
		rest := make(chan struct{})
		v := newReceiver(t, func(http.ResponseWriter, request) { <-rest })
		defer close(rest)
		pr := p.batch(`{"id":"a","data":"x"}`, "--url", v.URL, "--kill-after", "200ms")
		until(t, "it is in flight", func() bool { return len(v.requests()) == 1 })
		pr.signal(syscall.SIGTERM)
		pr.ends(2)
		if got := results(t, pr.out.String()); got["a"].Outcome != "in_doubt" {
			t.Errorf("results: %+v", got)
		}
		if l := p.letter(); l.Certainty != "in_doubt" || *l.EventID != "a" {
			t.Errorf("dead letter: %+v", l)
		}
	})
}

// A batch takes no more memory than a few of its messages, however many there
// are. scripts/bench sends 50,000 small ones.
func TestBatch_WhenItIsLong_ItsMemoryIsFlat(t *testing.T) {
	t.Parallel()
	const lines, size, limit = 20_000, 4 << 10, 64 << 10 // 80 MB of messages
	p := newPostgresPlace(t)
	var came atomic.Int64
	v := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		came.Add(1)
	}))
	defer v.Close()
	c := p.command("send", "--batch", "--url", v.URL, "--concurrency", "64")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout = io.Discard
	pr := p.startCommand(c)
	body := strings.Repeat("x", size)
	for i := range lines {
		if _, err := fmt.Fprintf(in, `{"id":"event/%d","data":"%s"}`+"\n", i, body); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all came", func() bool { return came.Load() == lines })
	peak := peakKiB(t, pr.Process.Pid)
	in.Close()
	pr.ends(0)
	if peak > limit {
		t.Errorf("it took %d KiB", peak)
	}
}

// peakKiB is the most memory that a living process has had: VmHWM of proc(5).
func peakKiB(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	n, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
