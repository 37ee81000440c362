package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func claimOnce(t *testing.T, c *Client) {
	t.Helper()
	won, err := c.Claim(context.Background(), runner.ClaimRequest{IDs: []runner.EventID{"a"}, Token: aToken})
	if err != nil || !won[0] {
		t.Fatalf("won %v, error %v", won, err)
	}
}

func TestListen_WhenOpened_TheFolderIsPrivateAndClosingRemovesIt(t *testing.T) {
	// A umask that takes nothing away, so that the modes are the server's own.
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	s := listen(t, nil)
	for path, want := range map[string]os.FileMode{
		filepath.Dir(s.Path()): os.ModeDir | 0o700,
		s.Path():               os.ModeSocket | 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Dir(s.Path())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// unix(7): a socket's address holds a path of 108 bytes, with its NUL.
func TestListen_WhenThePathIsLongerThanASocketAddress_BothSidesWork(t *testing.T) {
	s, err := Listen(Options{Folders: []string{deepFolder(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.Path()) <= 108 {
		t.Fatalf("the path has only %d bytes", len(s.Path()))
	}
	if info, err := os.Stat(s.Path()); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	s.Serve(theRun, newMemory())
	claimOnce(t, dial(t, s))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Dir(s.Path())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// The lengths at which a path just fits and just does not.
func TestListen_WhenThePathIsAboutTheLimit_BothSidesWork(t *testing.T) {
	for n := 105; n <= 110; n++ {
		dir := t.TempDir()
		pad := n - len(dir) - len("//"+socketName)
		if pad < 1 {
			t.Fatalf("the temporary folder %s is too deep for this test", dir)
		}
		path := filepath.Join(dir, strings.Repeat("p", pad), socketName)
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := listenAt(path)
		if err != nil {
			t.Fatalf("%d bytes: listening: %v", n, err)
		}
		c, err := dialAt(context.Background(), path)
		if err != nil {
			t.Fatalf("%d bytes: connecting: %v", n, err)
		}
		c.Close()
		l.Close()
	}
}

func TestListen_WhenCandidatesCannotBeWritten_TakesTheNextAndPrefersAShortPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(Options{Folders: []string{"", filepath.Join(dir, "missing"), file, deepFolder(t), "/proc", dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// curl knows no way around the limit.
	if got := filepath.Dir(filepath.Dir(s.Path())); got != dir {
		t.Errorf("the socket is in %s, want %s", got, dir)
	}
}

// The job may change its folder, so that the path must be absolute.
func TestListen_WhenTheCandidateIsRelative_ThePathIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := Listen(Options{Folders: []string{"."}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !filepath.IsAbs(s.Path()) {
		t.Errorf("the path is %s", s.Path())
	}
}

func TestListen_WhenNoCandidateCanBeWritten_NamesThemAll(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := Listen(Options{Folders: []string{missing, "/proc", ""}})
	if err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "/proc/") || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("got %v", err)
	}
	if _, err := Listen(Options{}); err == nil {
		t.Error("listening nowhere")
	}
}

// A run that is gone is no reason to claim by another way.
func TestClient_WhenTheRunIsGone_EveryCallSaysSo(t *testing.T) {
	closed := serving(t, newMemory())
	used := dial(t, closed) // has a connection of the time when the run lived
	claimOnce(t, used)
	closed.Close()

	stale := filepath.Join(t.TempDir(), "s") // of a run that was killed
	l, err := listenAt(stale)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for name, c := range map[string]*Client{"used before": used, "removed": Dial(closed.Path()), "left by a killed run": Dial(stale)} {
		for method, call := range calls() {
			err := call(c)
			var gone *goneError
			if !errors.Is(err, runner.ErrUnavailable) || !errors.As(err, &gone) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("%s: %s: %v", name, method, err)
			}
		}
		if _, err := c.Gate().Acquire(context.Background(), "http://a:80", 0); !errors.Is(err, runner.ErrUnavailable) {
			t.Errorf("%s: Acquire: %v", name, err)
		}
	}
}

// A run that dies in the middle of a claim leaves it unknown who won.
func TestClient_WhenTheRunDiesInACall_TheCallFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listenAt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, answer := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"won\":[true]", "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"won\":[true]}"} {
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			buf := make([]byte, 4096)
			_, _ = c.Read(buf)
			_, _ = c.Write([]byte(answer))
		}()
		c := Dial(path)
		won, err := c.Claim(context.Background(), runner.ClaimRequest{IDs: []runner.EventID{"a", "b"}})
		if won != nil && err == nil || !errors.Is(err, runner.ErrUnavailable) && !errors.Is(err, runner.ErrUndecided) {
			t.Errorf("answer %q: won %v, error %v", answer, won, err)
		}
		c.Close()
	}
}
