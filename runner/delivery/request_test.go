package delivery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func TestDeliver_WithAnyBody_SendsTheSameAtEachTry(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16)
	for _, body := range [][]byte{nil, {}, []byte("x"), {0, 0xff, '\r', '\n'}, big} {
		for _, method := range []string{"", "PUT", "PATCH"} {
			var seen recorder
			url := rawServer(t, func(_ int, conn *net.TCPConn) {
				requests(conn, func(req *http.Request, b []byte) bool {
					req.Header.Set("Content-Length", strconv.FormatInt(req.ContentLength, 10))
					if len(req.TransferEncoding) > 0 {
						t.Errorf("got Transfer-Encoding %q", req.TransferEncoding)
					}
					sum := sha256.Sum256(b)
					answer := "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
					if seen.add(req, sum[:]) == 3 {
						answer = okAnswer
					}
					io.WriteString(conn, answer)
					return true
				})
			})
			m := message(url)
			m.Body, m.Method, m.Idempotent = body, method, true
			got := newClient(t, Options{Retries: 5}).Deliver(context.Background(), m)
			if got.Outcome != runner.Delivered || seen.count() != 3 {
				t.Fatalf("%d bytes: got %+v after %d requests", len(body), got, seen.count())
			}
			want := sha256.Sum256(body)
			for i := range 3 {
				if seen.bodies[i] != string(want[:]) || seen.keys[i] != "order/4711" {
					t.Errorf("%d bytes, try %d: another body or key %q", len(body), i+1, seen.keys[i])
				}
				if l := seen.header[i].Get("Content-Length"); l != strconv.Itoa(len(body)) {
					t.Errorf("%d bytes, try %d: got Content-Length %q", len(body), i+1, l)
				}
			}
		}
	}
}

func TestDeliver_WithoutBody_SendsContentLengthZero(t *testing.T) {
	got := make(chan string, 1)
	url := rawServer(t, func(_ int, conn *net.TCPConn) {
		b := make([]byte, 4096)
		n, _ := conn.Read(b)
		got <- string(b[:n])
		io.WriteString(conn, okAnswer)
	})
	m := message(url)
	m.Body = nil
	m.Header = map[string][]string{"content-type": {"application/json"}, "X-Two": {"a", "b"}, "Host": {"receiver.example"}}
	c := newClient(t, Options{Version: "1.2.3"})
	c.Deliver(context.Background(), m)
	text := <-got
	for _, line := range []string{"POST / HTTP/1.1\r\n", "\r\nContent-Length: 0\r\n", "\r\nIdempotency-Key: order/4711\r\n",
		"\r\nUser-Agent: oncectl/1.2.3\r\n", "\r\nContent-Type: application/json\r\n", "\r\nX-Two: a\r\n", "\r\nX-Two: b\r\n",
		"\r\nHost: receiver.example\r\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in %q", line, text)
		}
	}
	if strings.Contains(text, "Accept-Encoding") {
		t.Errorf("asks for compression: %q", text)
	}
}

func TestDeliver_WhenSigned_StampsEachTry(t *testing.T) {
	s, _ := ParseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	c := newClient(t, Options{Signer: s, NoIdempotencyKey: true})
	m := message("http://receiver/")
	u, _ := url.Parse(m.URL)
	at := time.Unix(1614265330, 0)
	first := c.newRequest(context.Background(), m, u, at)
	second := c.newRequest(context.Background(), m, u, at.Add(time.Minute))
	if first.Header.Get("webhook-timestamp") != "1614265330" || second.Header.Get("webhook-timestamp") != "1614265390" {
		t.Errorf("got timestamps %q, %q", first.Header.Get("webhook-timestamp"), second.Header.Get("webhook-timestamp"))
	}
	if first.Header.Get("webhook-signature") == second.Header.Get("webhook-signature") {
		t.Error("the signatures are the same")
	}
	if first.Header.Get("Idempotency-Key") != "" {
		t.Error("an Idempotency-Key is sent")
	}
}

func TestDeliver_WhenAnswersAreErrors_UsesFewConnections(t *testing.T) {
	s, opened := connectionCounter(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		w.Write(bytes.Repeat([]byte("e"), 20_000))
	})
	c := newClient(t, Options{})
	for range 300 {
		c.Deliver(context.Background(), message(s))
	}
	if n := opened.Load(); n > 3 {
		t.Errorf("300 error answers took %d connections", n)
	}
}

func connectionCounter(t *testing.T, h http.HandlerFunc) (string, *atomic.Int64) {
	opened := new(atomic.Int64)
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, opened
}

// The server cannot write much more than the limit before the client hangs up.
func TestDeliver_WhenTheAnswerHasNoEnd_CutsIt(t *testing.T) {
	for status, want := range map[int]runner.Outcome{200: runner.Delivered, 500: runner.InDoubt, 404: runner.Failed} {
		written := make(chan int, 1)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			n := 0
			for {
				k, err := w.Write(make([]byte, 4096))
				if n += k; err != nil || n > 64<<20 {
					written <- n
					return
				}
			}
		}))
		got := newClient(t, Options{}).Deliver(context.Background(), message(s.URL))
		// The system's socket buffers take some megabytes more.
		if n := <-written; got.Outcome != want || n > 32<<20 {
			t.Errorf("%d: got %+v, the server wrote %d bytes", status, got, n)
		}
		s.Close()
	}
}

// An error answer that drips does not hold its sender for the whole timeout.
func TestDeliver_WhenAnErrorAnswerDrips_GoesOn(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(404)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	start := time.Now()
	got := newClient(t, Options{}).Deliver(context.Background(), message(s.URL))
	if got.Outcome != runner.Failed || time.Since(start) > 10*time.Second {
		t.Errorf("got %+v after %v", got, time.Since(start))
	}
}

func TestDeliver_ThroughAProxy_AsksIt(t *testing.T) {
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked = r.RequestURI }))
	defer s.Close()
	c := newClient(t, Options{Proxy: func(*url.URL) (*url.URL, error) { return url.Parse(s.URL) }})
	got := c.Deliver(context.Background(), message("http://receiver.invalid/in"))
	if got.Outcome != runner.Delivered || asked != "http://receiver.invalid/in" {
		t.Errorf("got %+v, the proxy was asked for %q", got, asked)
	}
	broken := errors.New("invalid proxy http://u:hunter2@p")
	c = newClient(t, Options{Proxy: func(*url.URL) (*url.URL, error) { return nil, broken }})
	got = c.Deliver(context.Background(), message("http://receiver.invalid/in"))
	if got.Outcome != runner.Failed || strings.Contains(got.LastError, "hunter2") {
		t.Errorf("got %+v", got)
	}
}

func TestCheck_WhenItCannotBeSent_SaysSo(t *testing.T) {
	c := newClient(t, Options{})
	for name, change := range map[string]func(*runner.Message){
		"no scheme":         func(m *runner.Message) { m.URL = "receiver/x" },
		"other scheme":      func(m *runner.Message) { m.URL = "ftp://receiver/x" },
		"no host":           func(m *runner.Message) { m.URL = "http:///x" },
		"port only":         func(m *runner.Message) { m.URL = "http://:80/x" },
		"broken URL":        func(m *runner.Message) { m.URL = "http://a%zz/" },
		"method":            func(m *runner.Message) { m.Method = "PO ST" },
		"body":              func(m *runner.Message) { m.Body = make([]byte, runner.MaxBodyBytes+1) },
		"id with a space":   func(m *runner.Message) { m.ID = " a" },
		"header name":       func(m *runner.Message) { m.Header = map[string][]string{"A B": {"c"}} },
		"header value":      func(m *runner.Message) { m.Header = map[string][]string{"A": {"b\r\nC: d"}} },
		"content length":    func(m *runner.Message) { m.Header = map[string][]string{"content-length": {"5"}} },
		"transfer encoding": func(m *runner.Message) { m.Header = map[string][]string{"Transfer-Encoding": {"chunked"}} },
		"key":               func(m *runner.Message) { m.Header = map[string][]string{"idempotency-key": {"k"}} },
	} {
		m := message("http://receiver/")
		change(&m)
		if err := c.Check(m); !errors.Is(err, runner.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	m := runner.Message{ID: "täglich/ü 1", URL: "https://user:pw@[::1]:8080/x?y#z", Method: "PROPFIND",
		Header: map[string][]string{"X": {"", "tab\tand ü"}}, Body: make([]byte, runner.MaxBodyBytes)}
	if err := c.Check(m); err != nil {
		t.Errorf("a good one: got %v", err)
	}
}

func TestHostOf_NamesSchemeHostAndPortOnly(t *testing.T) {
	for in, want := range map[string]string{
		"http://Example.org/a?b":         "http://example.org:80",
		"https://u:p@example.org":        "https://example.org:443",
		"https://example.org:8443/x":     "https://example.org:8443",
		"http://[2001:DB8::1]/":          "http://[2001:db8::1]:80",
		"HTTP://example.org:80/#a":       "http://example.org:80",
		"https://xn--bcher-kva.example/": "https://xn--bcher-kva.example:443",
	} {
		u, err := parseURL(in)
		if err != nil || hostOf(u) != want {
			t.Errorf("%s: got %q, %v", in, hostOf(u), err)
		}
	}
}
