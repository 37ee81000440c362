package cmd_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// Several hosts in one URL, and a standby, whose locks and claims guard nothing.

func TestStore_WhenTheURLNamesDeadHostsAndAStandby_ThePrimaryIsFound(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	standby := primary.Standby(t)
	// One host refuses the connection; another takes it and never answers.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p := placeAt(t, fmt.Sprintf("postgres://postgres@127.0.0.1:%d,%s,127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable",
		pgtest.FreePort(t), silent.Addr(), standby.Port, primary.Port), "public")
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{"run", "--lock", "nightly", "--", "oncectl", "claim", "event/1"}, 0},
		{[]string{"claim", "event/1"}, 1},
		{[]string{"claim", "event/2"}, 0},
	} {
		start := time.Now()
		if pr := p.start(c.args...).ends(c.status); pr.err.String() != "" {
			t.Errorf("%v was not quiet: %q", c.args, pr.err.String())
		}
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("%v took %v", c.args, d)
		}
	}
	if n := pgtest.Query(t, primary.URL(), "select count(*)::text from public.processed_events")[0]; n != "2" {
		t.Errorf("the primary has %s claims", n)
	}
}

func TestStore_WhenItIsAStandby_ItIsRefused(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	direct := placeAt(t, primary.URL(), "public")
	direct.start("run", "--lock", "nightly", "--", "oncectl", "claim", "event/1").ends(0)
	standby := primary.Standby(t)
	for name, url := range map[string]string{
		"direct": standby.URL(),
		// A pooler may hide what a connection to a standby says of itself.
		"pooled": pgtest.Bouncer(t, standby.URL(), "transaction"),
	} {
		t.Run(name, func(t *testing.T) {
			p := placeAt(t, url, "public").with("ONCECTL_STATE_DIR=/nonexistent")
			for _, c := range []struct {
				args   []string
				status int
			}{
				{[]string{"run", "--lock", "nightly", "--store-wait", "1s", "--", "touch", "ran"}, 125},
				{[]string{"claim", "--store-wait", "1s", "event/1"}, 2}, // it is there, and yet not "already claimed"
				{[]string{"claim", "--store-wait", "1s", "event/2"}, 2},
				{[]string{"claim", "--store-wait", "1s", "event/2", "--", "touch", "ran"}, 125},
			} {
				pr := p.start(c.args...).ends(c.status)
				s := pr.err.String()
				if !strings.Contains(s, "hot standby") || !strings.HasPrefix(s, "oncectl: ") || strings.Count(s, "\n") != 1 {
					t.Errorf("%v does not say in one line what is wrong: %q", c.args, s)
				}
			}
			if p.exists("ran") {
				t.Error("the command was run")
			}
		})
	}
}
