package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
)

// openFolder makes a private folder in the first of the candidates that takes
// one, and listens in it. Candidates whose path fits a socket address go first,
// so that curl can use the socket too.
func openFolder(candidates []string, leave func(paths ...string)) (folder string, l *net.UnixListener, err error) {
	var short, long []string
	for _, dir := range candidates {
		if dir == "" {
			continue
		}
		// The job may have another working directory.
		dir, err := filepath.Abs(dir)
		if err != nil {
			return "", nil, fmt.Errorf("finding the working directory: %w", err)
		}
		if len(dir)+len("/oncectl-4294967295/"+socketName) <= maxAddress() {
			short = append(short, dir)
		} else {
			long = append(long, dir)
		}
	}
	var errs []error
	for _, dir := range append(short, long...) {
		folder, l, err := listenIn(dir, leave)
		if err == nil {
			return folder, l, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return "", nil, errors.New("making a folder for the socket: no place was given")
	}
	return "", nil, fmt.Errorf("making a folder for the socket (TMPDIR names another place): %w", errors.Join(errs...))
}

// listenIn makes the folder in dir, with the socket in it.
func listenIn(dir string, leave func(paths ...string)) (folder string, l *net.UnixListener, err error) {
	folder = filepath.Join(dir, fmt.Sprintf("oncectl-%d", rand.Uint32()))
	socket := filepath.Join(folder, socketName)
	if leave != nil {
		leave(socket, folder)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", nil, err
	}
	l, err = listenAt(socket)
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(folder))
	}
	return folder, l, nil
}
