package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func TestLookup_WhenThePATHIsTheCommands_FindsAsExecvpDoes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, mode := range map[string]os.FileMode{"plain/job": 0o644, "good/job": 0o755, "later/job": 0o755, "here": 0o755} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("folder/job", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path, want string
		err              error
	}{
		{"job", "/none:folder:plain:good:later", "good/job", nil},
		{"job", "folder:plain", "", runner.ErrNotExecutable},
		{"job", "folder", "", runner.ErrNotFound},
		{"here", "good:", "./here", nil},
		{"here", ":good", "./here", nil},
		{"here", "good", "", runner.ErrNotFound},
		{"", "good", "", runner.ErrNotFound},
		{"plain/job", "good", "plain/job", nil}, // execve says what is wrong with it
	} {
		got, err := lookup(c.name, []string{"PATH=" + c.path, "PATH=good"})
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q in %q: %q, %v, want %q, %v", c.name, c.path, got, err, c.want, c.err)
		}
		if errors.Is(err, runner.ErrNotFound) && c.name != "" && !strings.Contains(err.Error(), c.path) {
			t.Errorf("the error does not name the PATH: %v", err)
		}
	}
}

func TestLookup_WhenThereIsNoPATH_SearchesTheDefault(t *testing.T) {
	if got, err := lookup("sh", []string{"HOME=/"}); err != nil || got != "/bin/sh" {
		t.Errorf("lookup() = %q, %v", got, err)
	}
	if _, err := lookup("no-such-command", nil); !errors.Is(err, runner.ErrNotFound) || !strings.Contains(err.Error(), defaultPath) {
		t.Errorf("lookup() = %v", err)
	}
}

func TestStartError_WhateverTheReason_TellsNotFoundFromNotExecutable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(file, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file  string
		errno syscall.Errno
		want  error
		text  string
	}{
		{"/none", syscall.ENOENT, runner.ErrNotFound, "/none"},
		{file, syscall.ENOENT, runner.ErrNotFound, "interpreter"},
		{file, syscall.EACCES, runner.ErrNotExecutable, "permission denied"},
		{file, syscall.E2BIG, runner.ErrNotExecutable, "too long"},
		{filepath.Dir(file), syscall.EACCES, runner.ErrNotExecutable, "is a directory"},
		{file, syscall.EAGAIN, syscall.EAGAIN, "starting"},
		{file, syscall.EMFILE, syscall.EMFILE, "starting"},
	} {
		if err := startError(c.file, c.errno); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v, want %v with %q", c.errno, err, c.want, c.text)
		}
	}
}
