package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// descriptors are what the descriptors of a process refer to.
func descriptors(t testing.TB, pid int) map[string]string {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil {
			all[filepath.Base(name)] = to
		}
	}
	return all
}

func contains(all map[string]string, to string) bool {
	for _, v := range all {
		if v == to {
			return true
		}
	}
	return false
}

// A descriptor too many would keep a lock, or the guard's socket, for as long
// as a daemon lives that the job has left.
func TestDescriptors_WhenTheJobStarts_AreTheInheritedOnes(t *testing.T) {
	t.Parallel()
	ours := descriptors(t, os.Getpid()) // what go test was started with comes down to the job
	for name, quietOK := range map[string]bool{"passed on": false, "kept back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := script("echo up; exec sleep 300")
			p.QuietOK, p.Lock = quietOK, filepath.Join(t.TempDir(), "lock")
			j := newJob(t, p)
			inherited := filepath.Join(t.TempDir(), "inherited")
			f, err := os.Create(inherited)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			j.ExtraFiles = []*os.File{f}
			j.begin().hears("started")
			await(t, "the job's sleep", func() bool {
				pids := j.living()
				if len(pids) != 1 {
					return false
				}
				name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pids[0]))
				return string(name) == "sleep\n"
			})
			fds := descriptors(t, j.living()[0])
			for n, to := range fds {
				if !slices.Contains([]string{"0", "1", "2", "3"}, n) && ours[n] != to {
					t.Errorf("the job has %s: %s", n, to)
				}
			}
			if len(fds) < 4 || fds["3"] != inherited {
				t.Errorf("the job has %v", fds)
			}
		})
	}
}

// The guard keeps the lock and its socket, and no pipe whose end others await.
func TestDescriptors_WhenTheJobRuns_TheGuardHasNoStreams(t *testing.T) {
	t.Parallel()
	j, lock := running(t, jobs["plain"].script, 1, 0)
	all := descriptors(t, j.guard())
	for _, pid := range []int{j.Process.Pid, j.living()[0]} {
		for _, n := range []string{"1", "2"} {
			if to := descriptors(t, pid)[n]; contains(all, to) {
				t.Errorf("the guard has %s", to)
			}
		}
	}
	if !contains(all, lock) {
		t.Errorf("the guard lacks the lock: %v", all)
	}
}

func TestDescriptors_WhenOneWasClosed_StaysClosed(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := filepath.Join(t.TempDir(), "seen")
			p := script(`s=; for i in 0 1 2; do if [ -e /proc/$$/fd/$i ]; then s=$s$i; fi; done; echo $s >"$SEEN"; exit 7`)
			p.Env = []string{"SEEN=" + seen}
			p.Options.Closed[i] = true
			start(t, p).ends(7)
			got, err := os.ReadFile(seen)
			want := strings.Replace("012", fmt.Sprint(i), "", 1) + "\n"
			if err != nil || string(got) != want {
				t.Errorf("the job has %q, %v, not %q", got, err, want)
			}
		})
	}
}
