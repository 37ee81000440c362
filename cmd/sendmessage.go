package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oncectl/oncectl/runner"
)

// messageOptions describe one message, or what the messages of a batch share.
type messageOptions struct {
	id      string
	url     string
	method  string
	data    string
	json    string
	headers []string
}

func (o *messageOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.id, "id", "", "event `ID`")
	f.StringVar(&o.url, "url", "", "where to send it")
	f.StringVarP(&o.method, "request", "X", http.MethodPost, "HTTP `METHOD`")
	f.StringVarP(&o.data, "data", "d", "", "body: `DATA`, @FILE, or @- for standard input")
	f.StringVar(&o.json, "json", "", "the same as JSON, with its Content-Type")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "header `'K: V'`, or @FILE with one a line (may be repeated)")
}

// order makes an order of the command line.
func (o *messageOptions) order(env *Env, cmd *cobra.Command) (runner.SendOrder, error) {
	data, json := cmd.Flags().Changed("data"), cmd.Flags().Changed("json")
	switch {
	case o.id == "":
		return runner.SendOrder{}, usagef("which event? --id is missing")
	case o.url == "":
		return runner.SendOrder{}, usagef("where to? --url is missing")
	case data && json:
		return runner.SendOrder{}, usagef("-d and --json are both the body: take one")
	}
	id, err := runner.ParseEventID(o.id)
	if err != nil {
		return runner.SendOrder{}, err
	}
	header, err := parseHeaders(o.headers)
	if err != nil {
		return runner.SendOrder{}, err
	}
	body, kind := o.data, ""
	switch {
	case json:
		body, kind = o.json, jsonType
	case data:
		kind = formType
	}
	b, err := readBody(env, body)
	if err != nil {
		return runner.SendOrder{}, err
	}
	idempotent, _ := cmd.Flags().GetBool("idempotent")
	noPayload, _ := cmd.Flags().GetBool("no-payload")
	return makeOrder(runner.Message{
		ID: id, URL: o.url, Method: o.method, Header: withType(header, kind), Body: b, Idempotent: idempotent,
	}, noPayload), nil
}

// What bodies are, unless a header says so: as curl has it for -d.
const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// withType is a copy of header that says what the body is: kind, unless it says
// so itself or there is nothing to say.
func withType(header http.Header, kind string) http.Header {
	h := header.Clone()
	if h.Get("Content-Type") == "" && kind != "" {
		h.Set("Content-Type", kind)
	}
	return h
}

// makeOrder adds to a message what its dead letter will need.
func makeOrder(m runner.Message, noPayload bool) runner.SendOrder {
	return runner.SendOrder{Message: m, Target: urlHost(m.URL), Request: storedRequest(m), NoPayload: noPayload}
}

// urlHost is the host of a URL, or what stands for it where it has none.
func urlHost(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "unknown"
	}
	return u.Host
}

// sentRequest is failed_jobs.request of a send: enough to send it again, without
// what may be secret. Headers other than Content-Type are named only.
type sentRequest struct {
	Method      string   `json:"method"`
	URL         string   `json:"url"` // without user and password
	ContentType string   `json:"content_type,omitempty"`
	Headers     []string `json:"headers_left_out,omitempty"`
	User        bool     `json:"user_left_out,omitempty"`
}

func storedRequest(m runner.Message) []byte {
	r := sentRequest{Method: m.Method}
	if u, err := url.Parse(m.URL); err == nil {
		r.User = u.User != nil
		u.User = nil
		r.URL = u.String()
	}
	for name, values := range m.Header {
		if http.CanonicalHeaderKey(name) == "Content-Type" && len(values) > 0 {
			r.ContentType = values[0]
			continue
		}
		r.Headers = append(r.Headers, name)
	}
	b, _ := json.Marshal(r) // strings always marshal
	return b
}

// readBody reads DATA, @FILE or @-, up to a byte more than is allowed.
func readBody(env *Env, arg string) ([]byte, error) {
	name, ok := strings.CutPrefix(arg, "@")
	if !ok {
		return []byte(arg), nil
	}
	in := env.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading the body: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, runner.MaxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	if len(b) > runner.MaxBodyBytes {
		return nil, fmt.Errorf("reading the body: %w: it has more than %d bytes", runner.ErrInvalid, runner.MaxBodyBytes)
	}
	return b, nil
}

// parseHeaders reads 'K: V' and @FILE. Messages name headers, never values.
func parseHeaders(args []string) (http.Header, error) {
	h := make(http.Header)
	for _, arg := range args {
		name, ok := strings.CutPrefix(arg, "@")
		if !ok {
			if err := addHeader(h, arg); err != nil {
				return nil, fmt.Errorf("-H: %w", err)
			}
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading headers: %w", err)
		}
		if err := addHeaders(h, string(b)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return h, nil
}

// addHeaders reads a header a line, and passes over empty lines and comments.
func addHeaders(h http.Header, text string) error {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := addHeader(h, line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

var errHeader = errors.New("a header is written 'Name: value'")

func addHeader(h http.Header, line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || strings.TrimSpace(name) == "" {
		return usageError{errHeader}
	}
	h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	return nil
}
