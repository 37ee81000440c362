package cmd_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// withTerminationLog gives a command a /dev of its own, with the file in which
// Kubernetes looks for last words, and prints what is in it at the end.
const withTerminationLog = `
dir=$1; shift
mount --make-rprivate / && mount -t tmpfs tmpfs "$dir" || exit 99
for name in null zero urandom; do touch "$dir/$name" && mount --bind "/dev/$name" "$dir/$name" || exit 99; done
echo before >"$dir/termination-log" && mount --rbind "$dir" /dev || exit 99
status=0; "$@" || status=$?
cat /dev/termination-log; exit $status`

func (p *place) terminating(args ...string) *process {
	c := exec.Command("unshare", append([]string{"-m", "sh", "-c", withTerminationLog, "sh", p.t.TempDir(), binDir + "/oncectl"}, args...)...)
	c.Dir, c.Env = p.dir, append(p.environ(), "KUBERNETES_SERVICE_HOST=10.0.0.1")
	return p.startCommand(c)
}

func TestRun_WhenItFailsInKubernetes_LeavesATerminationMessage(t *testing.T) {
	p := newPlace(t)
	if out, err := exec.Command("unshare", "-m", "mount", "--make-rprivate", "/").CombinedOutput(); err != nil {
		pgtest.Skip(t, "root that may mount: "+strings.TrimSpace(string(out)))
	}
	store := "--database-url=sqlite:" + p.path("db")
	job := []string{"run", store, "--lock", "l", "--", "sh", "-c"}
	tests := map[string]struct {
		args   []string
		status int
		want   string
	}{
		"the job fails":    {append(job, "echo one >&2; echo the last >&2; exit 3"), 3, "before\noncectl: the job of lock \"l\" failed: the command ended with exit status 3: the last\n"},
		"it succeeds":      {append(job, "echo one >&2"), 0, "before\n"},
		"a nested one":     {append(job, "oncectl run "+store+" --lock m -- false || true"), 0, "before\n"},
		"it is refused":    {[]string{"run", "--lock", "l", "--", "true"}, 125, "before\noncectl: "},
		"no main process":  {[]string{"claim", "x"}, 2, "before\n"},
		"a very long line": {append(job, "yes x | head -c 5000 | tr '\\n' x >&2; exit 3"), 3, "…\n"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			got := p.terminating(c.args...).ends(c.status).out.String()
			if !strings.Contains(got, c.want) || (strings.HasSuffix(c.want, "before\n") && got != c.want) || len(got) > 1100 {
				t.Errorf("left %q, want %q", got, c.want)
			}
		})
	}
}
