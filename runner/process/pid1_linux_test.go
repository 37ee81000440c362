package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// skip skips a test in words that scripts/test repeats at its end.
func skip(t testing.TB, needs string) {
	t.Helper()
	t.Skip("needs " + needs)
}

// asPID1 makes a driver the first process of a new PID namespace, as in a
// container without an init.
func asPID1(t *testing.T, p plan) *job {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "root, for PID namespaces")
	}
	if out, err := exec.Command("unshare", "-pf", "--mount-proc", "true").CombinedOutput(); err != nil {
		skip(t, "the right to make PID namespaces: "+strings.TrimSpace(string(out)))
	}
	j := newJob(t, p)
	j.Args = []string{"unshare", "-pf", "--mount-proc", "--kill-child", j.Path}
	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	j.Path = path
	return j
}

// settled waits until no process named here is left and says which zombies are.
const settled = `
while ps -eo comm= | grep -qx sleep; do :; done
i=0; while ps -eo stat= | grep -q '^Z' && [ $i -lt 50 ]; do sleep 0.02; i=$((i+1)); done
ps -eo stat=,comm= | grep '^Z'`

func TestPID1_WhenTheJobLeavesOrphans_ThereAreNoZombies(t *testing.T) {
	t.Parallel()
	j := asPID1(t, script(`
[ $(cat /proc/1/comm) != sh ] || exit 1
i=0; while [ $i -lt 50 ]; do (setsid sleep 0.$i & exec true); i=$((i+1)); done`+settled+`
exit 7`)).begin().ends(7)
	if got := j.out.all(t); got != "" {
		t.Errorf("zombies are left: %s", got)
	}
}

// A shell that somebody runs in the container (docker exec, kubectl exec) is
// no descendant of the guard: its orphans fall to the first process itself.
func TestPID1_WhenOthersLeaveOrphans_ThereAreNoZombies(t *testing.T) {
	t.Parallel()
	j := asPID1(t, script("echo up; read line"+settled+"; exit 7"))
	goOn := j.input()
	j.begin().says("up")
	var first int
	await(t, "the namespace's first process", func() bool {
		for _, first = range children(j.Process.Pid) {
			return true
		}
		return false
	})
	for range 20 {
		c := exec.Command("nsenter", "-t", fmt.Sprint(first), "-p", "-m", "sh", "-c", "sleep 0.05 & sleep 0.1 & exec true")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	goOn()
	j.ends(7)
	if got := strings.TrimPrefix(j.out.all(t), "up\n"); got != "" {
		t.Errorf("zombies are left: %s", got)
	}
}

func TestPID1_WhenOrphansEndAround_TheStatusIsTheCommands(t *testing.T) {
	t.Parallel()
	p := script("(sh -c 'exit 3' &); (sh -c 'kill -KILL $$' &); exit 7")
	p.Runs = 50
	asPID1(t, p).begin().ends(7)
}
