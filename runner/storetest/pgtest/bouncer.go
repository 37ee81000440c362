package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Bouncer starts PgBouncer in front of the server at serverURL, with that
// pool_mode and further settings, and returns the URL through it.
func Bouncer(t testing.TB, serverURL, mode string, settings ...string) string {
	t.Helper()
	program := "/usr/sbin/pgbouncer"
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("pgbouncer"); err != nil {
			Skip(t, "PgBouncer (Debian: pgbouncer)")
		}
	}
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	dir, port, user := tempDir(t), FreePort(t), unprivileged(t)
	conf := append([]string{
		"[databases]", fmt.Sprintf("* = host=%s port=%s", u.Hostname(), u.Port()),
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", port), "unix_socket_dir =",
		"auth_type = any", "pool_mode = " + mode, "max_client_conn = 500", "default_pool_size = 30",
		"logfile = " + filepath.Join(dir, "log"), "server_tls_sslmode = disable",
	}, settings...)
	for i, line := range conf {
		// auth_type any needs the user that the server is to see.
		if strings.HasPrefix(line, "* = ") && u.User != nil {
			conf[i] += " user=" + u.User.Username()
		}
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(strings.Join(conf, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	chown(t, dir, user)
	cmd := asUser(user, dir, program, file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	waitForPort(t, port)
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	u.RawQuery = "sslmode=disable"
	return u.String()
}

// waitForPort returns when something listens there.
func waitForPort(t testing.TB, port int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing listens on port %d: %v", port, err)
		}
	}
}
