package process_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What the guard does when the lease runs out under it.

// leased starts a job under a lock with that much of a lease.
func leased(t *testing.T, left time.Duration) *job {
	t.Helper()
	p := script("echo up; while :; do (sleep 0.05); done") // no vfork: its parent is never seen as stopped
	p.Lease, p.Options.Silence = left, time.Hour           // so that silence is not what pauses it
	return start(t, p)
}

// refuses makes a request and awaits that it is refused for the lock's loss.
func (j *job) refuses(request string) {
	j.t.Helper()
	fmt.Fprintln(j.control, request)
	if got := j.hears(request); !strings.Contains(got, "lost") {
		j.t.Fatalf("%s: %s, want that the lock is lost", request, got)
	}
}

// An order that was held up on its way is not obeyed late.
func TestStart_WhenTheLeaseHasRunOut_StartsNothing(t *testing.T) {
	t.Parallel()
	j := leased(t, -time.Nanosecond)
	if got := j.hears("error"); !strings.Contains(got, "lost") {
		t.Errorf("the driver says %q", got)
	}
	j.ends(failed)
	if j.out.String() != "" {
		t.Errorf("the command ran: %q", j.out.String())
	}
}

// The guard needs no word from oncectl to pause the job in time.
func TestJob_WhenTheLeaseRunsOut_IsPausedUntilThereIsAnother(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"alive": 0, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := leased(t, time.Second).says("up")
			if sig != 0 {
				j.signal(sig)
			}
			await(t, "the job is paused", func() bool { return j.allAre(true) })
			j.signal(syscall.SIGCONT)
			j.hears("halted")
			j.refuses("continue")
			if !j.allAre(true) {
				t.Error("it goes on without a lease")
			}
			j.asks("lease 1h")
			j.asks("continue")
			if !j.allAre(false) {
				t.Error("it does not go on")
			}
			j.asks("kill")
			j.ends(137)
		})
	}
}
