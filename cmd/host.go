package cmd

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/oncectl/oncectl/runner"
)

// thisHost names this machine. Its ID is made of the boot and the process id
// namespace (proc(5), namespaces(7)), since a pid means the same thing only to
// those who share both: two Pods of one name on two nodes must not take each
// other's pids for their own.
func thisHost() runner.Host {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return runner.Host{Name: name}
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return runner.Host{Name: name}
	}
	return runner.Host{Name: name, ID: strings.TrimSpace(string(boot)) + " " + ns}
}

// gone reports whether no process of that pid lives here. In doubt it is alive.
func gone(pid int) bool {
	return pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
