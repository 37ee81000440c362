package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// socketName is short, since it counts in the path.
const socketName = "s"

// maxAddress is the longest path that a socket address holds: sun_path has 108
// bytes on Linux and 104 on the BSDs and macOS, the last of them NUL (unix(7),
// unix(4)).
func maxAddress() int {
	if runtime.GOOS == "linux" {
		return 107
	}
	return 103
}

var errLongPath = errors.New("the path is too long for a socket address")

// withAddress calls f with an address for the socket at path: path itself or,
// where it is too long, one by way of the folder's descriptor.
func withAddress(path string, f func(address string) error) error {
	if len(path) <= maxAddress() {
		return f(path)
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%w: %s", errLongPath, path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path))
}

// listenAt binds a socket at path that only this user may use.
func listenAt(path string) (l *net.UnixListener, err error) {
	err = withAddress(path, func(address string) error {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the address may be by way of a descriptor that is closed
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func dialAt(ctx context.Context, path string) (c net.Conn, err error) {
	err = withAddress(path, func(address string) error {
		var d net.Dialer
		c, err = d.DialContext(ctx, "unix", address)
		return err
	})
	return c, err
}
