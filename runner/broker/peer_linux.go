package broker

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// trusted reports whether the process that connected is of this user or root.
// The folder's mode says so already; this holds where somebody has changed it.
func trusted(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return err == nil && credErr == nil && allowed(cred.Uid, os.Geteuid())
}

func allowed(peer uint32, own int) bool { return peer == 0 || int64(peer) == int64(own) }
