package pgstore

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// awkward are passwords that break URLs, each with a word that must not be
// shown.
var awkward = []string{
	"hush%Shush", "hush/hush", "hush@hush", "hush#hush", "hush?hush", "hush hush", "hush:hush", "hush%2", "%hush",
	"hush/?#@%S hush", "@hush", "/hush", "?hush=hush", "#hush", "hush&hush", "hush'hush", `hush\hush`, "hush@host/hush?a=b", "hüsh hush",
}

// secretServer is a server that asks for passwords.
func secretServer(t *testing.T) *pgtest.Server {
	t.Helper()
	s := pgtest.Start(t, "password_encryption = 'scram-sha-256'")
	hba := filepath.Join(s.Dir, "data", "pg_hba.conf")
	rules := "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(hba, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	pgtest.Query(t, s.URL(), "select pg_reload_conf()::text")
	pgtest.Exec(t, s.URL(), "create role app login", "create schema app authorization app")
	return s
}

// keyword quotes a value for a keyword string.
func keyword(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// try claims once with these settings.
func try(t *testing.T, conn string) error {
	t.Helper()
	s, err := Open(Config{ConnString: conn, Schema: "app", StoreWait: time.Millisecond})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Claim(t.Context(), claimOf(nil, "a"))
	return err
}

func TestPassword_WhenEncoded_Works(t *testing.T) {
	t.Parallel()
	server := secretServer(t)
	for _, password := range awkward {
		pgtest.Exec(t, server.URL(), "alter role app password "+quote(password))
		if err := try(t, as(t, server.URL(), "app", password)); err != nil {
			t.Errorf("%q in a URL: %v", password, err)
		}
		conn := fmt.Sprintf("host=127.0.0.1 port=%d dbname=postgres user=app sslmode=disable password=%s", server.Port, keyword(password))
		if err := try(t, conn); err != nil {
			t.Errorf("%q in a keyword string: %v", password, err)
		}
	}
	// The check that the server does ask.
	err := try(t, as(t, server.URL(), "app", "hush-wrong"))
	wantErr(t, "a wrong password", err, runner.ErrUnavailable)
	if !strings.Contains(err.Error(), "password authentication failed") || strings.Contains(err.Error(), "hush") {
		t.Errorf("a wrong password: %v", err)
	}
}

// Raw, a password works or is refused with advice; in no case is a part of it
// shown, or taken for a host that it is sent to.
func TestPassword_WhenRawInAURL_IsAdvisedAndNotShown(t *testing.T) {
	t.Parallel()
	for _, password := range awkward {
		if err := rawInURL(password); err != nil {
			t.Error(err)
		}
	}
}

func TestPassword_WhenRandomAndRawInAURL_IsAdvisedAndNotShown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		password := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"hush", "%", "/", "@", "#", "?", " ", ":", "&", "=", "%41", "5", "[", "]", "\\", "'"}), 1, 8).Draw(t, "password"), "")
		if err := rawInURL(password); err != nil {
			t.Fatal(err)
		}
	})
}

// rawInURL opens a store with the password as it is in a URL.
func rawInURL(password string) error {
	for _, end := range []string{"@db.example:5432/app", "@db.example/app?sslmode=disable", "@db.example", "@db.example?user=me@there"} {
		raw := "postgres://app:" + password + end
		s, err := Open(Config{ConnString: raw})
		switch {
		case err != nil && strings.Contains(err.Error(), "hush"):
			return fmt.Errorf("%s: a part of the password is shown: %w", raw, err)
		case err != nil && !strings.Contains(err.Error(), "percent-encode"):
			return fmt.Errorf("%s: no advice: %w", raw, err)
		case err == nil && s.parsed.Host != "db.example":
			return fmt.Errorf("%s: the host is taken to be %q", raw, s.parsed.Host)
		case err == nil && s.parsed.Password != password && s.parsed.Password != decoded(password):
			return fmt.Errorf("%s: the password is taken to be %q", raw, s.parsed.Password)
		}
		if err == nil {
			for name, value := range s.parsed.RuntimeParams {
				if strings.Contains(name+value, "hush") {
					return fmt.Errorf("%s: a part of it is taken for the parameter %s=%s", raw, name, value)
				}
			}
		}
	}
	return nil
}

// decoded is what a password means that happens to be encoded.
func decoded(password string) string {
	d, err := url.PathUnescape(password)
	if err != nil {
		return password
	}
	return d
}

// A keyword string needs no encoding, but quotes around spaces.
func TestPassword_WhenRawInAKeywordString_IsNotShown(t *testing.T) {
	t.Parallel()
	for _, password := range awkward {
		conn := "host=db.example user=app password=" + password + " dbname=app"
		s, err := Open(Config{ConnString: conn})
		switch {
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: a part of the password is shown: %v", conn, err)
		case err == nil && s.parsed.Host != "db.example":
			t.Errorf("%s: the host is taken to be %q", conn, s.parsed.Host)
		}
	}
}
