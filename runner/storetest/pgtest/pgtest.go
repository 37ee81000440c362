// Package pgtest gives tests real PostgreSQL servers, poolers and networks that
// fail: private clusters that an unprivileged user runs on free ports, and that
// are gone when the test is.
package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// SharedURL is the variable that names the cluster which all tests share: the
// URL of a superuser. scripts/test starts one.
const SharedURL = "ONCECTL_TEST_POSTGRES"

var schemas atomic.Int64

// Schema returns the shared server's URL and the name of a schema that does not
// exist yet; it is dropped when the test ends.
func Schema(t testing.TB) (url, schema string) {
	t.Helper()
	url = os.Getenv(SharedURL)
	if url == "" {
		Skip(t, "a PostgreSQL server: set "+SharedURL+", or use ./scripts/test")
	}
	schema = fmt.Sprintf("t%d_%d_%d", os.Getpid(), time.Now().UnixNano(), schemas.Add(1))
	t.Cleanup(func() { Exec(t, url, "drop schema if exists "+schema+" cascade") })
	return url, schema
}

// Skip skips a test in words that scripts/test repeats at its end.
func Skip(t testing.TB, needs string) {
	t.Helper()
	t.Skip("needs " + needs)
}

// Exec runs statements as the superuser.
func Exec(t testing.TB, url string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	defer c.Close(ctx)
	for _, s := range statements {
		if _, err := c.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// Query returns the first column of all rows, as text.
func Query(t testing.TB, url, query string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, query, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	out, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
		return string(r.RawValues()[0]), nil
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

// Server is a private cluster.
type Server struct {
	Dir  string
	Port int
	bin  string
	user string
}

// Start makes and starts a cluster with these settings in postgresql.conf.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{Dir: tempDir(t), Port: FreePort(t), bin: serverBin(t), user: unprivileged(t)}
	chown(t, s.Dir, s.user)
	s.run(t, "initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8")
	s.configure(t, settings)
	s.Up(t)
	t.Cleanup(func() { s.Stop(t, "immediate") })
	return s
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

func (s *Server) configure(t testing.TB, settings []string) {
	conf := append([]string{
		"listen_addresses = '127.0.0.1'", "port = " + strconv.Itoa(s.Port), "unix_socket_directories = '" + s.Dir + "'",
		"max_connections = 200", "shared_buffers = 32MB", "fsync = off", "wal_level = replica", "max_wal_senders = 4",
		"wal_keep_size = 64MB", // for a standby that is made later
	}, settings...)
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, strings.Join(conf, "\n"))
}

// Up starts the server and waits until it answers.
func (s *Server) Up(t testing.TB) {
	t.Helper()
	s.run(t, "pg_ctl", "-D", s.data(), "-l", filepath.Join(s.Dir, "log"), "-w", "-t", "60", "start")
}

// Stop stops the server: fast or immediate.
func (s *Server) Stop(t testing.TB, mode string) {
	t.Helper()
	cmd := s.command("pg_ctl", "-D", s.data(), "-m", mode, "-w", "-t", "60", "stop")
	_, _ = cmd.CombinedOutput() // it may be down already
}

// URL is a superuser's URL.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.Port)
}

// Log is the server's log so far.
func (s *Server) Log(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *Server) run(t testing.TB, program string, args ...string) {
	t.Helper()
	if out, err := s.command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	return asUser(s.user, s.Dir, filepath.Join(s.bin, program), args...)
}

// asUser runs a command as user, or as ourselves if that is empty. It does not
// outlive a killed test by more than its own work.
func asUser(user, dir, program string, args ...string) *exec.Cmd {
	if user != "" {
		args = append([]string{"--reuid=" + user, "--regid=" + user, "--clear-groups", "--", program}, args...)
		program = "setpriv"
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C")
	return cmd
}

// serverBin is the folder of the server's programs: the newest there is.
func serverBin(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("ONCECTL_TEST_PGBIN"); dir != "" {
		return dir
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	sort.Slice(dirs, func(i, j int) bool { return version(dirs[i]) > version(dirs[j]) })
	if len(dirs) > 0 {
		return dirs[0]
	}
	if p, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(p)
	}
	Skip(t, "PostgreSQL's server programs (Debian: postgresql)")
	return ""
}

func version(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

// unprivileged is a user who may run a server when we are root, else "".
func unprivileged(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return ""
	}
	for _, user := range []string{"postgres", "nobody"} {
		if exec.Command("id", "-u", user).Run() == nil {
			if user == "nobody" && exec.Command("getent", "group", "nobody").Run() != nil {
				continue
			}
			return user
		}
	}
	Skip(t, "an unprivileged user named postgres or nobody")
	return ""
}

// tempDir is a short path, for Unix sockets in it. It is in the folder that
// scripts/test, where it runs us, searches for servers of a test that was killed.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("ONCECTL_TEST_DIR"), "pgt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func chown(t testing.TB, dir, user string) {
	t.Helper()
	if user == "" {
		return
	}
	if out, err := exec.Command("chown", "-R", user, dir).CombinedOutput(); err != nil {
		t.Fatalf("chown: %v %s", err, out)
	}
}

// FreePort is a port that was free a moment ago.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
