package cmd_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// A root file system that cannot be written is usual in containers.

const readOnlyRoot = `mount --make-rprivate / && mount -o remount,bind,ro / && exec "$@"`

// readOnly runs oncectl where only /dev/shm can be written.
func (p *place) readOnly(args ...string) *process {
	c := exec.Command("unshare", append([]string{"-m", "sh", "-c", readOnlyRoot, "sh", binDir + "/oncectl"}, args...)...)
	c.Dir, c.Env = "/", p.environ()
	return p.startCommand(c)
}

func needReadOnlyRoot(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("unshare", "-m", "sh", "-c", readOnlyRoot, "sh", "sh", "-c", "! touch /tmp/probe-$$ 2>/dev/null").CombinedOutput(); err != nil {
		pgtest.Skip(t, "root that may make / read-only for a process: "+strings.TrimSpace(string(out)))
	}
}

func TestRun_WhenTheRootIsReadOnly_WorksOnPostgres(t *testing.T) {
	needReadOnlyRoot(t)
	p := newPostgresPlace(t)
	pr := p.readOnly("run", "--lock", "nightly", "--quiet-ok", "--", "sh", "-c", "oncectl claim a && echo won >&2; exit 3").ends(3)
	if pr.err.String() != "won\n" {
		t.Errorf("stderr %q", pr.err.String())
	}
}

func TestStore_WhenItCannotBeWritten_NamesThePathAndTheVariable(t *testing.T) {
	needReadOnlyRoot(t)
	p := newPlace(t)
	pr := p.readOnly("claim", "a").ends(2)
	for _, want := range []string{p.path("state"), "ONCECTL_STATE_DIR", "read-only"} {
		if !strings.Contains(pr.err.String(), want) {
			t.Errorf("no %q in %q", want, pr.err.String())
		}
	}
}

// nobody has a home that does not exist, and no HOME.
func TestStore_WhenThereIsNoHome_SaysWhatToSet(t *testing.T) {
	if os.Geteuid() != 0 {
		pgtest.Skip(t, "root")
	}
	p := newPlace(t)
	if err := os.Chmod(binDir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binDir+"/oncectl", "claim", "a")
	c.Dir, c.Env = "/", []string{"PATH=/usr/bin:/bin"}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	pr := p.startCommand(c).ends(2)
	if !strings.Contains(pr.err.String(), "ONCECTL_STATE_DIR") {
		t.Errorf("stderr %q", pr.err.String())
	}
}
