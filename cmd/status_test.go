package cmd_test

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// A run that was killed has no end and no dead letter: only the status can tell.
func TestStatus_WhenARunWasKilled_ItIsUnknownUntilTheNext(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		pr := p.start("run", "--lock", "nightly", "--", "sh", "-c", "echo up; exec sleep 300")
		pr.says("up")
		out := p.start("status", "-o", "json").ends(0).out.String()
		if !strings.Contains(out, `"held":true`) || !strings.Contains(out, `"outcome":"running"`) {
			t.Errorf("the lock that is held shows as %s", out)
		}
		p.start("status", "--check").ends(0)
		pr.signal(syscall.SIGKILL)
		pr.ends(137)
		// The guard frees the lock once the job is dead.
		var check *process
		until(t, "the lock is free", func() bool {
			check = p.start("status", "--check")
			return check.wait() == 1
		})
		if got := check.out.String(); !strings.Contains(got, `lock "nightly": how run 1 on `) {
			t.Errorf("status --check says %q", got)
		}
		if got := p.start("runs").ends(0).out.String(); !strings.Contains(got, " unknown ") {
			t.Errorf("runs shows %q", got)
		}
		p.start("run", "--lock", "nightly", "--wait", "20s", "--", "true").ends(0)
		p.start("status", "--check").ends(0)
	})
}

// A lock behind a pooler is held by a transaction, and shown all the same.
func TestStatus_WhenThereIsAPooler_ShowsWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	p := placeAt(t, pgtest.Bouncer(t, url, "transaction"), schema)
	pr := p.start("run", "--lock", "nightly", "--", "sh", "-c", "echo up; exec sleep 300")
	pr.says("up")
	if out := p.start("status", "-o", "json").ends(0).out.String(); !strings.Contains(out, `"held":true,"holder":"`) {
		t.Errorf("the lock shows as %s", out)
	}
	pr.signal(syscall.SIGTERM)
	pr.wait()
	p.start("status", "--check", "--store-wait", "20s").ends(1) // a stopped run is a failure
}

// A run that ends while the status looks at it and at its lock is not taken for
// one that was lost: nobody is called for it.
func TestStatus_WhenRunsComeAndGo_NoneIsUnknown(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		p.start("run", "--lock", "busy", "--", "true").ends(0)
		sh := exec.Command("sh", "-c", "for i in $(seq 40); do oncectl run --lock busy -- true || exit; done; echo over")
		sh.Dir, sh.Env = p.dir, p.environ()
		runs := p.startCommand(sh)
		for over := false; !over; {
			over = strings.Contains(runs.out.String(), "over")
			if pr := p.start("status", "--check"); pr.wait() != 0 {
				t.Fatalf("status --check says %q %q", pr.out.String(), pr.err.String())
			}
		}
		runs.ends(0)
	})
}

func TestStatus_WhenTheStoreIsDown_Ends2(t *testing.T) {
	p := placeAt(t, "postgres://x@127.0.0.1:1/x", "oncectl")
	p.write("old.prom", "old")
	for _, args := range [][]string{
		{"status", "--check"}, {"status", "-o", "prometheus", "--file", "old.prom"}, {"runs"}, {"prune", "--older-than", "1d"},
	} {
		pr := p.start(append(args, "--store-wait", "0")...).ends(2)
		if pr.out.String() != "" || !strings.Contains(pr.err.String(), "cannot be reached") {
			t.Errorf("%v: stdout %q, stderr %q", args, pr.out.String(), pr.err.String())
		}
	}
	if got := p.read("old.prom"); got != "old" {
		t.Errorf("the old metrics are now %q", got)
	}
}
