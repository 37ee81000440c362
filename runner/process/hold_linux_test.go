package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The guard goes on where a request could not even be sent.
func TestHold_WhenTheFileIsClosed_SaysSoAndHarmsNothing(t *testing.T) {
	t.Parallel()
	p := script("echo up; read line; exit 7")
	j := newJob(t, p)
	goOn := j.input()
	j.begin().says("up")
	if got := j.answers("hold-closed"); !strings.Contains(got, "bad file descriptor") {
		t.Errorf("Hold() = %s", got)
	}
	j.asks("pause")
	j.asks("continue")
	goOn()
	j.ends(7)
}

// The guard holds the new lock from then on, and the old one no longer.
func TestHold_WhenThereIsANewLock_FreesTheOld(t *testing.T) {
	t.Parallel()
	j, lock := running(t, jobs["sessions"].script, jobs["sessions"].n, 0)
	next := filepath.Join(filepath.Dir(lock), "next")
	j.asks("hold " + next)
	if held := descriptors(t, j.guard()); contains(held, lock) || !contains(held, next) {
		t.Errorf("the guard has %v", held)
	}
	if err := j.Process.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	freed(t, j, next)
}
