//go:build !linux

package broker

import "net"

// trusted relies on the folder, which only this user may enter.
func trusted(*net.UnixConn) bool { return true }
