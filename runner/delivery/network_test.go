package delivery

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// A failure before anything was written is repeated; one after it only if the
// message is idempotent. Requests are those that a server saw whole.
func TestDeliver_ForEveryNetworkFailure_RepeatsOnlyWhatIsSafe(t *testing.T) {
	tlsServer := httptest.NewUnstartedServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0)
	tlsServer.StartTLS()
	defer tlsServer.Close()
	for _, c := range []struct {
		name    string
		url     string
		answer  func(conn *net.TCPConn) // after a request; nil: see below
		early   func(conn *net.TCPConn) // instead of reading a request
		written bool
		silent  bool // it ends by a timeout
		says    string
	}{
		{name: "refused", url: "http://127.0.0.1:1", says: "connection refused"},
		{name: "DNS", url: "http://no-such-host.invalid", says: "no-such-host.invalid"},
		{name: "TLS, unknown authority", url: tlsServer.URL, says: "certificate"},
		{name: "TLS, no such protocol", url: "https", early: func(conn *net.TCPConn) { io.WriteString(conn, "HTTP/1.1 400 Bad\r\n\r\n"); conn.Close() }, says: "TLS handshake"},
		{name: "TLS, reset in the handshake", url: "https", early: reset, says: "reset"},
		{name: "TLS, silence in the handshake", silent: true, url: "https", early: func(conn *net.TCPConn) { io.Copy(io.Discard, conn) }, says: "TLS handshake"},
		{name: "reset after", written: true, answer: reset, says: "reset"},
		{name: "closed without an answer", written: true, answer: func(conn *net.TCPConn) { conn.Close() }, says: "EOF"},
		{name: "timeout", silent: true, written: true, answer: func(conn *net.TCPConn) { io.Copy(io.Discard, conn) }, says: "not finished within 200ms"},
		{name: "truncated header", written: true, answer: say("HTTP/1.1 200 OK\r\nContent-Le"), says: "no whole answer"},
		{name: "truncated answer", written: true, answer: say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), says: "broke off"},
		{name: "truncated chunk", written: true, answer: say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal"), says: "broke off"},
		{name: "no HTTP", written: true, answer: say("SSH-2.0-OpenSSH\r\n"), says: "malformed"},
		{name: "endless header", written: true, answer: endlessHeader, says: "header"},
	} {
		for _, idempotent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, idempotent %v", c.name, idempotent), func(t *testing.T) {
				var seen recorder
				url := c.url
				if c.answer != nil || c.early != nil {
					raw := rawServer(t, func(_ int, conn *net.TCPConn) {
						if c.early != nil {
							c.early(conn)
							return
						}
						requests(conn, func(req *http.Request, body []byte) bool {
							seen.add(req, body)
							c.answer(conn)
							return false
						})
					})
					url = strings.Replace(raw, "http", cmp.Or(c.url, "http"), 1)
				}
				m := message(url)
				m.Idempotent = idempotent
				o := Options{Retries: 2}
				if c.silent {
					o.Timeout, o.ConnectTimeout = 200*time.Millisecond, 100*time.Millisecond
				}
				client := newClient(t, o)
				got := client.Deliver(context.Background(), m)
				outcome, tries, whole := runner.Failed, 3, 0
				if c.written {
					outcome, whole = runner.InDoubt, 3
					if !idempotent {
						tries, whole = 1, 1
					}
				}
				if got.Outcome != outcome || got.Attempts != tries || seen.count() != whole {
					t.Errorf("got %+v after %d requests; want %s, %d tries, %d requests", got, seen.count(), outcome, tries, whole)
				}
				if !strings.Contains(got.LastError, c.says) {
					t.Errorf("got error %q, which does not say %q", got.LastError, c.says)
				}
			})
		}
	}
}

func say(text string) func(conn *net.TCPConn) {
	return func(conn *net.TCPConn) {
		io.WriteString(conn, text)
		conn.Close()
	}
}

func endlessHeader(conn *net.TCPConn) {
	io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
	for {
		if _, err := io.WriteString(conn, "X-A: "+strings.Repeat("a", 1000)+"\r\n"); err != nil {
			return
		}
	}
}

// The reset has arrived before the request is begun: nothing is written.
func TestDeliver_WhenResetAfterConnectingAndBeforeTheRequest_Repeats(t *testing.T) {
	var seen recorder
	url := rawServer(t, func(n int, conn *net.TCPConn) {
		if n <= 2 {
			reset(conn)
			return
		}
		requests(conn, func(req *http.Request, body []byte) bool {
			seen.add(req, body)
			io.WriteString(conn, okAnswer)
			return true
		})
	})
	c := newClient(t, Options{Retries: 2})
	transport := c.transport.(*http.Transport)
	dial := transport.DialContext
	n := 0
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if n++; err == nil && n <= 2 {
			conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			conn.Read(make([]byte, 1)) // until the reset is here
			conn.SetReadDeadline(time.Time{})
		}
		return conn, err
	}
	got := c.Deliver(context.Background(), message(url))
	if got.Outcome != runner.Delivered || got.Attempts != 3 || seen.count() != 1 {
		t.Errorf("got %+v after %d requests", got, seen.count())
	}
}

func TestDeliver_WhenNobodyAnswersTheConnect_EndsWithinItsTimeout(t *testing.T) {
	c := newClient(t, Options{ConnectTimeout: 50 * time.Millisecond, Timeout: time.Minute})
	c.transport.(*http.Transport).DialContext = (&dialer{timeout: 50 * time.Millisecond, net: net.Dialer{
		Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	}}).dial
	start := time.Now()
	got := c.Deliver(context.Background(), message("http://slow-name.test"))
	if got.Outcome != runner.Failed || time.Since(start) > 5*time.Second {
		t.Errorf("got %+v after %v", got, time.Since(start))
	}
}

func TestDeliver_OverTLSWithItsAuthority_Delivers(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("got protocol %s", r.Proto)
		}
	}))
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	got := newClient(t, Options{RootCAs: pool}).Deliver(context.Background(), message(s.URL))
	if got.Outcome != runner.Delivered {
		t.Errorf("got %+v", got)
	}
}
