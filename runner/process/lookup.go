package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/process/guard"
)

// defaultPath is searched where the command's environment has no PATH, as
// execvp(3) does.
const defaultPath = "/bin:/usr/bin"

// shell runs executable files that the kernel does not know the format of:
// scripts without #!, as execvp(3) does.
const shell = "/bin/sh"

// lookup finds the file to execute as execvp(3) would, in the PATH of the
// command's own environment. A name with a slash is not looked up.
func lookup(name string, env []string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("%w: its name is empty", runner.ErrNotFound)
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, ok := getenv(env, "PATH")
	if !ok {
		path = defaultPath
	}
	var denied error
	for _, dir := range strings.Split(path, ":") {
		if dir == "" {
			dir = "." // POSIX: an empty entry is the working directory
		}
		file := dir + "/" + name
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if denied == nil && errors.Is(err, fs.ErrPermission) {
			denied = fmt.Errorf("%w: %s: %w", runner.ErrNotExecutable, filepath.Clean(file), err)
		}
	}
	switch {
	case denied != nil:
		return "", denied
	case !ok:
		return "", fmt.Errorf("%w: %q is not in %s (PATH is not set)", runner.ErrNotFound, name, defaultPath)
	}
	return "", fmt.Errorf("%w: %q is not in PATH=%s", runner.ErrNotFound, name, path)
}

func executable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	// The effective user's rights are what execve asks for.
	return unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
}

// getenv returns the value that getenv(3) would: the first.
func getenv(env []string, name string) (string, bool) {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// startError translates what fork or execve said about file.
func startError(file string, errno syscall.Errno) error {
	switch errno {
	case guard.LeaseOver:
		return fmt.Errorf("%w before %s was started", runner.ErrLockLost, file)
	case syscall.ENOENT:
		if _, err := os.Stat(file); err == nil {
			return fmt.Errorf("%w: %s is there, but the interpreter that it names is not", runner.ErrNotFound, file)
		}
		return fmt.Errorf("%w: %s: %w", runner.ErrNotFound, file, errno)
	case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EBADMSG:
		return fmt.Errorf("starting %s: %w", file, errno)
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		errno = syscall.EISDIR
	}
	return fmt.Errorf("%w: %s: %w", runner.ErrNotExecutable, file, errno)
}
