package cmd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// What becomes of a message that is not delivered, and who is told.

// letter is what a test looks at in a dead letter's JSON.
type letter struct {
	ID          int64
	Kind        string
	Name        string
	EventID     *string `json:"event_id"`
	Certainty   string
	Attempts    int
	LastError   string  `json:"last_error"`
	PayloadHash *string `json:"payload_hash"`
	Request     map[string]any
	RetryAt     *string `json:"retry_at"`
	ResolvedAt  *string `json:"resolved_at"`
	Resolution  *string
}

// letters lists dead letters.
func (p *place) letters(flags ...string) (all []letter) {
	p.t.Helper()
	pr := p.start(append([]string{"failed", "list", "-o", "json"}, flags...)...).ends(0)
	if err := json.Unmarshal([]byte(pr.out.String()), &all); err != nil {
		p.t.Fatalf("%v: %s", err, pr.out.String())
	}
	return all
}

// letter is the only unresolved one.
func (p *place) letter() letter {
	p.t.Helper()
	all := p.letters()
	if len(all) != 1 {
		p.t.Fatalf("%d dead letters: %+v", len(all), all)
	}
	return all[0]
}

// state is what 'claims' says of an event.
func (p *place) state(id string) string {
	p.t.Helper()
	pr := p.start("claims", "-o", "json", "--prefix", id).ends(0)
	var all []struct {
		ID    string `json:"event_id"`
		State string
	}
	if err := json.Unmarshal([]byte(pr.out.String()), &all); err != nil {
		p.t.Fatalf("%v: %s", err, pr.out.String())
	}
	for _, c := range all {
		if c.ID == id {
			return c.State
		}
	}
	return ""
}

func TestSend_WhenTheCapIsReached_LeavesOneDeadLetter(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, p *place) {
		v := newReceiver(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusTooManyRequests) })
		pr := p.start("send", "--id", "invoice/1", "--url", v.URL+"/in?a=b", "-d", "total=12", "--retries", "2", "--backoff", "1ms").ends(1)
		pr.complains(`"invoice/1" was not delivered: `)
		if n := len(v.requests()); n != 3 {
			t.Errorf("%d requests came", n)
		}
		l := p.letter()
		if l.Kind != "send" || l.Attempts != 3 || l.Certainty != "failed" || *l.PayloadHash != sha("total=12") || *l.EventID != "invoice/1" {
			t.Errorf("dead letter: %+v", l)
		}
		if !strings.Contains(l.LastError, "429 Too Many Requests") || l.Name != strings.TrimPrefix(v.URL, "http://") {
			t.Errorf("dead letter: %+v", l)
		}
		if l.Request["url"] != v.URL+"/in?a=b" || l.Request["method"] != "POST" {
			t.Errorf("request: %v", l.Request)
		}
	})
}

func TestSend_WhenRedirected_NamesLocation(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, p *place) {
		next := newReceiver(t, nil)
		v := newReceiver(t, func(w http.ResponseWriter, r request) {
			w.Header().Set("Location", next.URL+"/new")
			var status int
			_, _ = fmt.Sscanf(r.id, "event/%d", &status)
			w.WriteHeader(status)
		})
		for _, status := range []int{301, 302, 303, 307, 308} {
			id := fmt.Sprint("event/", status)
			pr := p.start("send", "--id", id, "--url", v.URL, "-d", "x").ends(1)
			pr.complains("Location " + next.URL + "/new")
		}
		if n := v.eachOnce(t); n != 5 {
			t.Errorf("%d requests came", n)
		}
		if n := len(next.requests()); n != 0 {
			t.Errorf("%d redirects were followed", n)
		}
		for _, l := range p.letters() {
			if l.Certainty != "failed" || l.Attempts != 1 || !strings.Contains(l.LastError, "Location "+next.URL+"/new") {
				t.Errorf("dead letter: %+v", l)
			}
		}
	})
}

// What may have been processed is not repeated: it is in doubt, and stays so
// for whoever sends it later.
func TestSend_WhenNoAnswerComes_IsInDoubtUntilSettled(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, p *place) {
		v := newReceiver(t, func(w http.ResponseWriter, r request) {
			if r.nth == 1 {
				reset(w)
			}
		})
		send := func(flags ...string) *process {
			return p.start(append([]string{"send", "--id", "invoice/1", "--url", v.URL, "-d", "total=12"}, flags...)...)
		}
		send().ends(1).complains(`"invoice/1" is in doubt`)
		send().ends(1).complains(`"invoice/1" is in doubt`)
		v.wantOne(t, "invoice/1")
		if l := p.letter(); l.Certainty != "in_doubt" || l.Attempts != 1 {
			t.Errorf("dead letter: %+v", l)
		}
		send("--idempotent").ends(0)
		if n := len(v.requests()); n != 2 {
			t.Errorf("%d requests came", n)
		}
		if all := p.letters(); len(all) != 0 {
			t.Errorf("dead letters: %+v", all)
		}
		if s := p.state("invoice/1"); s != "delivered" {
			t.Errorf("the event is %q", s)
		}
	})
}

// A sender that died leaves a claim that nobody finishes. The next send, of
// whatever, the next run and the next look make a dead letter of it.
func TestSend_WhenItsSenderDied_BecomesADeadLetter(t *testing.T) {
	t.Parallel()
	for name, next := range map[string][]string{
		"send":  {"send", "--id", "other", "--url", "http://127.0.0.1:1", "--retries", "0"},
		"batch": {"send", "--batch"},
		"run":   {"run", "--lock", "other", "--", "true"},
		"look":  {"failed", "list"},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, p *place) {
				hang := make(chan struct{})
				v := newReceiver(t, func(_ http.ResponseWriter, r request) {
					if r.nth == 1 {
						<-hang
					}
				})
				pr := p.start("send", "--id", "invoice/1", "--url", v.URL, "-d", "total=12")
				until(t, "it was sent", func() bool { return len(v.requests()) == 1 })
				if err := pr.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				pr.ends(137)
				close(hang)
				p.start(next...).wait()
				if n := p.query("select event_id from {s}failed_jobs where event_id = 'invoice/1'"); len(n) != 0 {
					t.Errorf("it became a dead letter before it had expired")
				}
				p.expire()
				p.start(next...).wait()
				found := p.query("select certainty || ' ' || payload_hash from {s}failed_jobs where event_id = 'invoice/1'")
				if len(found) != 1 || found[0] != "in_doubt "+sha("total=12") {
					t.Errorf("dead letters: %q", found)
				}
				p.start("send", "--id", "invoice/1", "--url", v.URL, "-d", "total=12").ends(1).complains("in doubt")
				v.wantOne(t, "invoice/1")
				p.start("send", "--id", "invoice/1", "--url", v.URL, "-d", "total=12", "--idempotent").ends(0)
				if found := p.query("select event_id from {s}failed_jobs where event_id = 'invoice/1' and resolved_at is null"); len(found) != 0 {
					t.Errorf("it is still a dead letter")
				}
			})
		})
	}
}

func TestSend_WhenTheStoreIsGoneAfterwards_SaysWhatItCouldNotRecord(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	p := placeAt(t, server.URL(), "public")
	v := newReceiver(t, func(http.ResponseWriter, request) { server.Stop(t, "immediate") })
	for name, args := range map[string][]string{
		"single": {"send", "--id", "single", "--url", v.URL, "-d", "total=12"},
		"batch":  {"send", "--batch", "--url", v.URL},
	} {
		c := p.command(append(args, "--store-wait", "500ms")...)
		c.Stdin = strings.NewReader(`{"id":"batch","data":"total=12"}`)
		pr := p.startCommand(c).ends(2)
		for _, want := range []string{fmt.Sprintf("%q", name), sha("total=12")} {
			if !strings.Contains(pr.err.String(), want) {
				t.Errorf("it did not say %s: %q", want, pr.err.String())
			}
		}
		server.Up(t)
		if s := p.state(name); s != "unfinished" {
			t.Errorf("the event is %q", s)
		}
	}
	if n := v.eachOnce(t); n != 2 {
		t.Errorf("%d requests came", n)
	}
}
