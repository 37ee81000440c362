package guard

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A start that takes longer than the lease must not leave the job running until
// oncectl is heard again.
func TestWatch_WhenTheLeaseEndedMeanwhile_PausesTheJob(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	oncectl := NewConn(fds[1])
	t.Cleanup(func() { _, _ = syscall.Close(fds[0]), syscall.Close(fds[1]) })
	job := exec.Command("sleep", "60")
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = job.Process.Kill(); _ = job.Wait() })

	s := &server{conn: NewConn(fds[0]), lock: -1, tree: NewTree(os.Getpid()), pid: job.Process.Pid, limit: 3600e9, until: now() - 1}
	s.watch()
	m, err := oncectl.Recv()
	if err != nil || m.Type != Halted {
		t.Errorf("the guard says %+v, %v", m, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", job.Process.Pid))
	if err != nil || !strings.Contains(string(stat), ") T ") {
		t.Errorf("the job is not paused: %s, %v", stat, err)
	}
	s.watch() // it stays as it is
	if !s.paused {
		t.Error("it was continued")
	}
}
