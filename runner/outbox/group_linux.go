package outbox

import "syscall"

// groupOfItsOwn also has the command killed when this process is: its row goes
// out again when the lease ends, and must not do so beside it. The signal is
// sent when the thread ends that started the command, which for Go's threads is
// when the process does.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
