//go:build unix && !linux

package guard

import "syscall"

// Tree is the command's process group where there is no /proc to walk: what
// made a group of its own is out of reach.
type Tree struct{ group int }

// NewTree returns a tree that knows no group yet.
func NewTree(int) *Tree { return &Tree{} }

// Stop stops the group.
func (t *Tree) Stop(own int) syscall.Errno { return t.send(own, syscall.SIGSTOP) }

// Continue continues the group that Stop stopped.
func (t *Tree) Continue() syscall.Errno { return t.send(t.group, syscall.SIGCONT) }

// Kill kills the group.
func (t *Tree) Kill(own int) (denied bool) {
	return t.send(max(own, t.group), syscall.SIGKILL) == syscall.EPERM
}

// SignalGroup does nothing in a group that is not the command's own.
func (t *Tree) SignalGroup(int, syscall.Signal) syscall.Errno { return 0 }

func (t *Tree) send(group int, sig syscall.Signal) syscall.Errno {
	if group <= 0 {
		return 0
	}
	t.group = group
	return send(-group, sig)
}
