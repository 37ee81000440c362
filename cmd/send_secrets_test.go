package cmd_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// What is secret in a message's address and headers is seen by its receiver and
// by nobody else.

// secretWays are ways of giving one. Each has the text s3cret in it, which the
// receiver gets: whole in a header, or encoded as a user's password is.
var secretWays = map[string]func(p *place, url string) []string{
	"header": func(_ *place, url string) []string {
		return []string{"--url", url, "-H", "Authorization: Basic s3cret=="}
	},
	"attached":        func(_ *place, url string) []string { return []string{"--url", url, "-HAuthorization: Basic s3cret=="} },
	"attached equals": func(_ *place, url string) []string { return []string{"--url", url, "-H=Authorization: Basic s3cret=="} },
	"long header": func(_ *place, url string) []string {
		return []string{"--url", url, "--header=Authorization: Basic s3cret=="}
	},
	"header file": func(p *place, url string) []string {
		p.write("headers", "# ours\n\nAuthorization: Basic s3cret==\n")
		return []string{"--url", url, "-H", "@headers"}
	},
	"user":          func(_ *place, url string) []string { return []string{"--url", withUser(url)} },
	"user equals":   func(_ *place, url string) []string { return []string{"--url=" + withUser(url)} },
	"user in query": func(_ *place, url string) []string { return []string{"--url", withUser(url) + "?a=b&c=d@e"} },
	"signed": func(p *place, url string) []string {
		p.write("secret", "whsec_czNjcmV0czNjcmV0czNjcmV0czNjcmV0czNjcmV0\n") // s3crets3cret…
		return []string{"--url", url, "--webhook-secret-file", "secret"}
	},
}

func withUser(url string) string { return strings.Replace(url, "http://", "http://app:s3cret@", 1) }

// secrets are the forms in which the secret could be seen.
var secrets = []string{"s3cret", "YXBwOnMzY3JldA", "czNjcmV0"}

func TestSend_WhenItHasSecrets_ShowsThemToNobody(t *testing.T) {
	t.Parallel()
	for name, way := range secretWays {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, p *place) {
				rest := make(chan struct{})
				v := newReceiver(t, func(w http.ResponseWriter, r request) {
					<-rest
					w.WriteHeader(http.StatusInternalServerError)
				})
				pr := p.start(append([]string{"send", "-v", "--id", "invoice/1", "-d", "total=12"}, way(p, v.URL)...)...)
				until(t, "it was sent", func() bool { return len(v.requests()) == 1 })
				cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pr.Process.Pid))
				if err != nil {
					t.Fatal(err)
				}
				close(rest)
				pr.ends(1)
				if r := v.requests()[0]; name != "signed" && !strings.Contains(r.header.Get("Authorization"), "s3cret") &&
					!strings.Contains(r.header.Get("Authorization"), "YXBwOnMzY3JldA") {
					t.Errorf("the receiver did not get it: %v", r.header)
				}
				shown := map[string]string{
					"the command line": string(cmdline), "stdout": pr.out.String(), "stderr": pr.err.String(),
					"the dead letter": p.start("failed", "show", fmt.Sprint(p.letter().ID)).ends(0).out.String(),
					"the list":        p.start("failed", "list", "-o", "json").ends(0).out.String(),
					"the store":       p.dump(),
				}
				for where, text := range shown {
					for _, secret := range secrets {
						if strings.Contains(text, secret) {
							t.Errorf("%s has it: %q", where, text)
						}
					}
				}
			})
		})
	}
}

// dump is all that the store knows of claims and dead letters. No payload of
// these tests has a secret.
func (p *place) dump() string {
	p.t.Helper()
	if _, _, ok := p.isPostgres(); ok {
		return strings.Join(append(p.query("select to_jsonb(e)::text from {s}processed_events e"),
			p.query("select to_jsonb(l)::text from {s}failed_jobs l")...), "\n")
	}
	return strings.Join(append(
		p.query("select json_array(event_id, token, owner, payload_hash, target) from {s}processed_events"),
		p.query("select json_array(name, event_id, request, last_error, resolution, cast(payload as text)) from {s}failed_jobs")...), "\n")
}

// The store's own URL is as secret as a receiver's.
func TestSend_WhenTheStoresURLIsAnArgument_ItIsNotInTheProcessList(t *testing.T) {
	t.Parallel()
	p := newPostgresPlace(t)
	url, schema, _ := p.isPostgres()
	secret := strings.Replace(url, "postgres@", "postgres:s3cret@", 1)
	bare := *p
	bare.env = []string{"ONCECTL_SCHEMA=" + schema}
	for name, args := range map[string][]string{
		"apart": {"--database-url", secret}, "equals": {"--database-url=" + secret},
		"keywords": {"--database-url", "host=127.0.0.1 user=postgres password=s3cret dbname=postgres port=" + portOf(url)},
	} {
		t.Run(name, func(t *testing.T) {
			rest := make(chan struct{})
			v := newReceiver(t, func(http.ResponseWriter, request) { <-rest })
			pr := bare.start(append([]string{"send", "--id", name, "--url", v.URL, "-d", "x"}, args...)...)
			until(t, "it was sent", func() bool { return len(v.requests()) == 1 })
			cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pr.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			close(rest)
			pr.ends(0)
			if strings.Contains(string(cmdline), "s3cret") {
				t.Errorf("the command line has it: %q", cmdline)
			}
		})
	}
}

func portOf(url string) string {
	_, after, _ := strings.Cut(url, "127.0.0.1:")
	port, _, _ := strings.Cut(after, "/")
	return port
}
