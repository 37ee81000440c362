package delivery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oncectl/oncectl/runner"
)

const idempotencyKey = "Idempotency-Key"

// Check tells what about m cannot be sent, before anything is claimed for it.
// The error wraps runner.ErrInvalid and repeats neither URL nor header values.
func (c *Client) Check(m runner.Message) error {
	if _, err := parseURL(m.URL); err != nil {
		return err
	}
	if m.Method != "" && !isToken(m.Method) {
		return fmt.Errorf("%w: the method is not an HTTP method", runner.ErrInvalid)
	}
	if len(m.Body) > runner.MaxBodyBytes {
		return fmt.Errorf("%w: the body has %d bytes, the limit is %d", runner.ErrInvalid, len(m.Body), runner.MaxBodyBytes)
	}
	inHeader := !c.options.NoIdempotencyKey || c.options.Signer != nil
	if id := string(m.ID); inHeader && strings.TrimSpace(id) != id {
		return fmt.Errorf("%w: the event id begins or ends with a space, which no HTTP header carries", runner.ErrInvalid)
	}
	for name, values := range m.Header {
		if err := c.checkHeader(name, values); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) checkHeader(name string, values []string) error {
	if !isToken(name) {
		return fmt.Errorf("%w: %s is not the name of a header", runner.ErrInvalid, oneLine(fmt.Sprintf("%q", name)))
	}
	switch http.CanonicalHeaderKey(name) {
	case "Content-Length", "Transfer-Encoding", "Trailer":
		return fmt.Errorf("%w: the header %s is oncectl's to set", runner.ErrInvalid, name)
	case idempotencyKey:
		if !c.options.NoIdempotencyKey {
			return fmt.Errorf("%w: %s is the event id: give --no-idempotency-key to send another", runner.ErrInvalid, name)
		}
	}
	for _, value := range values {
		if strings.ContainsFunc(value, isNoHeaderRune) {
			return fmt.Errorf("%w: the value of the header %s has a control character", runner.ErrInvalid, name)
		}
	}
	return nil
}

func isNoHeaderRune(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isToken reports whether s is a token of RFC 9110, 5.6.2.
func isToken(s string) bool {
	const marks = "!#$%&'*+-.^_`|~"
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alnum := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !alnum && !strings.ContainsRune(marks, r)
	})
}

// parseURL accepts absolute http and https URLs. Its error holds no part of s,
// since what does not parse may be a password.
func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the URL cannot be parsed: percent-encode what is special in it", runner.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%w: the URL does not begin with http:// or https://", runner.ErrInvalid)
	case u.Hostname() == "":
		return nil, fmt.Errorf("%w: the URL names no host", runner.ErrInvalid)
	}
	return u, nil
}

// hostOf is the key of a host's pace and its name for people: scheme, name and
// port, and nothing that can be secret.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	name := strings.ToLower(u.Hostname())
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return u.Scheme + "://" + name + ":" + port
}

// newRequest makes the request of one try at now. GetBody stays nil and a body
// that is not empty stays unknown to net/http, so that its transport has
// nothing to repeat (see attempt for the empty one).
func (c *Client) newRequest(ctx context.Context, m runner.Message, u *url.URL, now time.Time) *http.Request {
	req := (&http.Request{
		Method: m.Method,
		URL:    u,
		Host:   u.Host,
		Header: make(http.Header, len(m.Header)+4),
	}).WithContext(ctx)
	if req.Method == "" {
		req.Method = http.MethodPost
	}
	if len(m.Body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(m.Body))
		req.ContentLength = int64(len(m.Body))
	}
	req.Header.Set("User-Agent", "oncectl/"+c.options.Version)
	for name, values := range m.Header {
		name = http.CanonicalHeaderKey(name)
		if name == "Host" && len(values) > 0 {
			req.Host = values[0]
			continue
		}
		req.Header[name] = values
	}
	if u.User != nil && req.Header.Get("Authorization") == "" {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	if !c.options.NoIdempotencyKey {
		req.Header.Set(idempotencyKey, string(m.ID))
	}
	if c.options.Signer != nil {
		c.options.Signer.sign(req.Header, m.ID, now, m.Body)
	}
	return req
}
