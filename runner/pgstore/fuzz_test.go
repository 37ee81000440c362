package pgstore

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/oncectl/oncectl/runner"
)

// Whatever a password is, raw in a URL it works or is refused with advice; no
// part of it is shown, or taken for something else.
func FuzzPasswordInURL(f *testing.F) {
	for _, p := range awkward {
		before, after, _ := strings.Cut(p, "hush")
		f.Add(before, after)
	}
	f.Add("%", "\x00")
	f.Add("", ",")
	f.Add("[", "]")
	f.Fuzz(func(t *testing.T, before, after string) {
		if err := rawInURL(before + "hush" + after); err != nil {
			t.Error(err)
		}
	})
}

// Of settings in any form that are refused, neither a password nor anything
// else is shown. What they name is not looked at: no file is read but what
// pgconn itself reads.
func FuzzConnString(f *testing.F) {
	for _, s := range []string{
		"postgres://u:p@h1:1,h2:2/db?sslmode=disable&connect_timeout=3", "host=a,b port=1,2 user=u password='p w' dbname=d", "host=/tmp user=u", "postgres:///db?host=/tmp",
		"password=", "password='", `password=\`, "postgres://[::1]:5432/db", "postgres://u@h:99999/db", "postgres://u@h/db?target_session_attrs=primary", "postgres://u@h/db?sslmode=nonsense", "=", "a=b=c",
		"postgres://u:hush@h/%zz", "host=h password=hush port=x", "host=h password = hush port=x", `host=h password='a\'hush' port=x`, "host=h password=hush sslmode=x", "postgres://h/?password=hush&port=x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "file") || strings.Contains(s, "cert") || strings.Contains(s, "key") {
			return // the names of files, which this must not open at random
		}
		st, err := Open(Config{ConnString: s})
		if err == nil {
			_ = st.Close()
			if name := st.parsed.RuntimeParams["application_name"]; name != "oncectl" {
				t.Errorf("the application_name is %q", name)
			}
			return
		}
		said := err.Error()
		if !errors.Is(err, runner.ErrInvalid) || len(said) > 500 || strings.ContainsAny(said, "\r\n") || !utf8.ValidString(said) {
			t.Errorf("%q: %q", s, said)
		}
		if u, parseErr := url.Parse(s); parseErr == nil && u.User != nil {
			if p, _ := u.User.Password(); len(p) > 8 && strings.Contains(said, p) {
				t.Errorf("the password %q is shown: %q", p, said)
			}
		}
		if strings.Contains(said, "hush") {
			t.Errorf("%q is shown: %q", s, said)
		}
	})
}
