package cmd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// fifty is as many hosts as have one crontab here.
const fifty = 50

// Fifty hosts whose crontabs fire in the same second.

func TestRun_WhenFiftyStartOnOneTick_OneRunsAndTheOthersEndAtOnce(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); newPlace(t).oneOfFifty(nil) })
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		p := newPostgresPlace(t)
		url, _, _ := p.isPostgres()
		p.oneOfFifty(proxies(t, url))
	})
	t.Run("pooled", func(t *testing.T) {
		t.Parallel()
		p := newPooledPlace(t, "transaction")
		url, _, _ := p.isPostgres()
		p.oneOfFifty(proxies(t, url))
	})
}

// proxies are fifty ways to a server, each of which counts its connections.
func proxies(t *testing.T, url string) (all []*pgtest.Proxy) {
	for range fifty {
		p, _ := pgtest.NewProxy(t, url)
		all = append(all, p)
	}
	return all
}

// oneOfFifty starts fifty runs of one tick, each through a proxy of its own if
// there are some.
func (p *place) oneOfFifty(through []*pgtest.Proxy) {
	t := p.t
	t.Helper()
	p.start("run", "--lock", "earlier", "--", "true").ends(0) // makes the tables
	// The job goes on until all others have ended: what they find is the lock,
	// and never that the tick has been done. The tick is the year's, so that no
	// minute ends between the first and the last.
	args := []string{"run", "--lock", "nightly", "--tick", "0 0 1 1 *", "--", "sh", "-c",
		"echo $$ >>ran; until [ -e stop ]; do sleep 0.05; done"}
	var all []*process
	started := time.Now()
	for i := range fifty {
		from := p
		if through != nil {
			from = p.with("ONCECTL_DATABASE_URL=" + through[i].URL())
		}
		all = append(all, from.start(args...))
	}
	starting := time.Since(started)
	until(t, "all but one ended", func() bool { return ended(all) == fifty-1 })
	took := time.Since(started)
	t.Logf("%d runs were started in %v; all but one had ended %v after the first start", fifty, starting.Round(time.Millisecond), took.Round(time.Millisecond))
	// Two seconds are the promise, on a machine of its own to each. Here they
	// share its cores with each other and with the tests beside this one.
	if took > 20*time.Second {
		t.Errorf("the last of the others ended after %v", took)
	}
	p.write("stop", "")
	for i, pr := range all {
		if pr.ends(0); pr.out.String()+pr.err.String() != "" {
			t.Errorf("run %d was not quiet: %q", i, pr.out.String()+pr.err.String())
		}
	}
	if n := strings.Count(p.read("ran"), "\n"); n != 1 {
		t.Errorf("%d ran", n)
	}
	for i, proxy := range through {
		if n := proxy.Connections(); n < 1 || n > 2 {
			t.Errorf("run %d made %d connections", i, n)
		}
	}
	// Whoever comes late finds the tick done.
	late := p.start(append(args[:5:5], "-v", "--", "touch", "late")...).ends(0)
	if p.exists("late") || !strings.Contains(late.err.String(), "succeeded") {
		t.Errorf("a late one ran, or did not say why not: %q", late.err.String())
	}
}
