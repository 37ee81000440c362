package cmd_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// Dead letters of sends, and what a person does with them.

// broken is a receiver that answers with a status until it is mended.
func broken(t *testing.T, status int) (v *receiver, mend func()) {
	var mended atomic.Bool
	v = newReceiver(t, func(w http.ResponseWriter, _ request) {
		if !mended.Load() {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(status)
		}
	})
	return v, func() { mended.Store(true) }
}

func (p *place) retry(args ...string) *process {
	return p.start(append([]string{"failed", "retry"}, args...)...)
}

func TestRetry_WhenARejectedSendIsRepeated_IsReallySentAgain(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, p *place) {
		v, mend := broken(t, http.StatusBadRequest)
		p.start("send", "--id", "invoice/1", "--url", v.URL+"/in", "-X", "PUT", "--json", `{"total":12}`, "-H", "Authorization: Bearer s3cret").ends(1)
		first := p.letter()

		// Not mended yet: a new dead letter takes the place of the old one.
		p.retry(fmt.Sprint(first.ID)).ends(1).complains(`"invoice/1" was not delivered`)
		second := p.letter()
		if second.ID == first.ID || second.Attempts != 1 {
			t.Errorf("dead letters: %+v, %+v", first, second)
		}
		p.retry(fmt.Sprint(first.ID)).ends(1).complains("it is resolved")

		mend()
		pr := p.retry(fmt.Sprint(second.ID), "-H", "Authorization: Bearer an3w").ends(0)
		if s := pr.out.String() + pr.err.String(); s != "" {
			t.Errorf("it was not quiet: %q", s)
		}
		got := v.requests()
		if len(got) != 3 {
			t.Fatalf("%d requests came", len(got))
		}
		for i, want := range []string{"Bearer s3cret", "", "Bearer an3w"} {
			r := got[i]
			if r.id != "invoice/1" || r.path != "/in" || r.hash != sha(`{"total":12}`) ||
				r.header.Get("Content-Type") != "application/json" || r.header.Get("Authorization") != want {
				t.Errorf("request %d: %+v", i+1, r)
			}
		}
		if s := p.state("invoice/1"); s != "delivered" {
			t.Errorf("the event is %q", s)
		}
		if all := p.letters(); len(all) != 0 {
			t.Errorf("dead letters: %+v", all)
		}
		for _, l := range p.letters("--all") {
			if l.ResolvedAt == nil || *l.Resolution == "" {
				t.Errorf("dead letter: %+v", l)
			}
		}
		p.retry(fmt.Sprint(second.ID)).ends(1).complains("it is resolved")
		p.start("send", "--id", "invoice/1", "--url", v.URL+"/in", "-X", "PUT", "--json", `{"total":12}`).ends(0)
		if n := len(v.requests()); n != 3 {
			t.Errorf("%d requests came", n)
		}
	})
}

func TestRetry_WhenInDoubt_NeedsToBeTold(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--in-doubt", "--idempotent"} {
		t.Run(flag, func(t *testing.T) {
			eachStore(t, func(t *testing.T, p *place) {
				v, mend := broken(t, http.StatusBadGateway)
				p.start("send", "--id", "invoice/1", "--url", strings.Replace(v.URL, "//", "//app:s3cret@", 1), "-d", "total=12").ends(1)
				mend()
				id := fmt.Sprint(p.letter().ID)
				p.retry(id).ends(1).complains("it may have been delivered")
				v.wantOne(t, "invoice/1")
				// The password, which was not kept, comes with the URL.
				p.retry(id, flag, "--url", strings.Replace(v.URL, "//", "//app:an3w@", 1)).ends(0)
				if got := v.requests(); len(got) != 2 || got[1].id != "invoice/1" || got[1].header.Get("Authorization") != "Basic YXBwOmFuM3c=" {
					t.Errorf("requests: %+v", got)
				}
				if all := p.letters(); len(all) != 0 {
					t.Errorf("dead letters: %+v", all)
				}
			})
		})
	}
}

// That it was refused this time says nothing of the time before, so that a plain
// send still does not send it.
func TestRetry_WhenInDoubtAndThenRefused_StaysInDoubt(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, p *place) {
		var status atomic.Int64
		status.Store(http.StatusBadGateway)
		v := newReceiver(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(int(status.Load())) })
		send := func() *process { return p.start("send", "--id", "invoice/1", "--url", v.URL, "-d", "total=12") }
		send().ends(1)
		status.Store(http.StatusNotFound)
		for range 2 {
			p.retry(fmt.Sprint(p.letter().ID), "--in-doubt").ends(1).complains("in doubt: an earlier sender")
		}
		send().ends(1)
		if l, n := p.letter(), len(v.requests()); l.Certainty != "in_doubt" || p.state("invoice/1") != "in_doubt" || n != 3 {
			t.Errorf("dead letter %+v, event %s, %d requests", l, p.state("invoice/1"), n)
		}
	})
}

// One crontab line takes all whose time has come, also from within a run. What
// cannot be sent does not keep it from the others.
func TestRetry_WhenDue_TakesThoseWhoseTimeHasCome(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, p *place) {
		v, mend := broken(t, http.StatusTooManyRequests)
		other, mendOther := broken(t, http.StatusTooManyRequests)
		for i := range 4 {
			args := []string{"send", "--id", fmt.Sprint("event/", i), "--url", v.URL, "-d", "x"}
			if i == 1 {
				args = append(args, "--no-payload")
			}
			p.start(args...).ends(1)
		}
		p.start("send", "--id", "other", "--url", other.URL, "-d", "x").ends(1)
		mend()
		mendOther()
		sent := len(v.requests())
		for _, l := range p.letters() {
			if l.RetryAt == nil || l.Certainty != "failed" {
				t.Errorf("dead letter: %+v", l)
			}
		}
		p.retry("--due").ends(0)
		if n := len(v.requests()); n != sent {
			t.Errorf("%d were sent before their time", n-sent)
		}
		p.query(`update {s}failed_jobs set retry_at = '2000-01-01T00:00:00.000Z' where event_id <> 'event/3' returning event_id`)
		p.query(`update {s}failed_jobs set request = '{"method":"POST","url":"nowhere"}' where event_id = 'event/0' returning event_id`)
		pr := p.retry("--due", "--name", strings.TrimPrefix(v.URL, "http://")).ends(2)
		pr.complains("its payload was not kept")
		pr.complains("does not begin with http")
		var left []string
		for _, l := range p.letters() {
			left = append(left, *l.EventID)
		}
		if want := []string{"event/0", "event/1", "event/3", "other"}; !slices.Equal(left, want) {
			t.Errorf("dead letters of %q are left, not of %q", left, want)
		}
		p.retry("--due").ends(2)
		if got := other.requests(); len(got) != 2 || got[1].id != "other" {
			t.Errorf("requests: %+v", got)
		}
	})
}

// Whoever may write a table may not thereby run code.
func TestRetry_WhenItIsACommand_IsNotRun(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, p *place) {
		p.start("run", "--lock", "nightly", "--keep-args", "--", "sh", "-c", "echo x >>ran; exit 7").ends(7)
		p.start("claim", "invoice/1", "--", "sh", "-c", "echo x >>ran; exit 8").ends(8)
		p.query(`insert into {s}failed_jobs (kind, name, event_id, payload_hash, payload, request, last_error, certainty, retry_at)
			values ('claim', 'sh', 'invoice/2', 'x', 'touch ran2', '{"argv":["sh","-c","touch ran2"],"method":"POST","url":"http://127.0.0.1:1"}', 'x', 'failed',
			'2000-01-01T00:00:00.000Z') returning event_id`)
		all := p.letters()
		if len(all) != 3 {
			t.Fatalf("dead letters: %+v", all)
		}
		for _, l := range all {
			p.retry(fmt.Sprint(l.ID), "--in-doubt", "--url", "http://127.0.0.1:1").ends(1).complains("commands are never run from the table")
		}
		p.retry("--due").ends(1)
		if got := p.read("ran"); got != "x\nx\n" || p.exists("ran2") {
			t.Errorf("it was run: %q", got)
		}
		if len(p.letters()) != 3 {
			t.Error("one was resolved")
		}
	})
}

func TestRetry_WhenManyAtOnce_OneMessage(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, p *place) {
		v, mend := broken(t, http.StatusBadRequest)
		p.start("send", "--id", "invoice/1", "--url", v.URL, "-d", "x").ends(1)
		mend()
		id := fmt.Sprint(p.letter().ID)
		var all []*process
		for range 10 {
			all = append(all, p.retry(id))
		}
		for _, pr := range all {
			// Who comes late finds it resolved.
			if got := pr.wait(); got != 0 && !strings.Contains(pr.err.String(), "it is resolved") {
				t.Errorf("status %d, stderr %q", got, pr.err.String())
			}
		}
		if n := len(v.requests()); n != 2 {
			t.Errorf("%d requests came", n)
		}
	})
}
