package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// A server answers the first request, keeps the connection, and closes it when
// the second has arrived. net/http by itself sends that one again.
func TestDeliver_WhenAKeptConnectionClosesAsTheRequestArrives_SendsItOnce(t *testing.T) {
	for _, close := range map[string]func(*net.TCPConn){"EOF": func(c *net.TCPConn) { c.Close() }, "reset": reset} {
		for _, body := range []string{"", "hello"} {
			for _, method := range []string{"POST", "PUT", "DELETE", "GET", "HEAD", "OPTIONS"} {
				t.Run(fmt.Sprintf("%s, %d bytes", method, len(body)), func(t *testing.T) {
					var seen recorder
					url := rawServer(t, func(_ int, conn *net.TCPConn) {
						requests(conn, func(req *http.Request, b []byte) bool {
							if seen.add(req, b) == 1 {
								io.WriteString(conn, okAnswer)
								return true
							}
							close(conn)
							return false
						})
					})
					c := newClient(t, Options{Retries: 5})
					m := message(url)
					m.Method, m.Body = method, []byte(body)
					if got := c.Deliver(context.Background(), m); got.Outcome != runner.Delivered {
						t.Fatalf("first: got %+v", got)
					}
					got := c.Deliver(context.Background(), m)
					if got.Outcome != runner.InDoubt || got.Attempts != 1 || seen.count() != 2 {
						t.Errorf("second: got %+v; the server saw %d requests, want 2", got, seen.count())
					}
				})
			}
		}
	}
}

// The same over TLS, where the kept connection is found by another way.
func TestDeliver_WhenAKeptTLSConnectionCloses_SendsItOnce(t *testing.T) {
	var seen recorder
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if seen.add(r, body) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	c := newClient(t, Options{Retries: 5, RootCAs: pool})
	m := message(s.URL)
	m.Body = nil
	c.Deliver(context.Background(), m)
	got := c.Deliver(context.Background(), m)
	if got.Outcome != runner.InDoubt || seen.count() != 2 {
		t.Errorf("got %+v; the server saw %d requests, want 2", got, seen.count())
	}
}

// A server that offers HTTP/2 is spoken to in HTTP/1.1, which has no repeats
// below the hooks.
func TestDeliver_WhenHTTP2IsOffered_DoesNotTakeIt(t *testing.T) {
	var proto string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proto = r.Proto }))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	got := newClient(t, Options{RootCAs: pool}).Deliver(context.Background(), message(s.URL))
	if got.Outcome != runner.Delivered || proto != "HTTP/1.1" {
		t.Errorf("got %+v over %s", got, proto)
	}
}

// A kept connection that was closed before anything was written to it is no
// try: the message goes out on the next one at once.
func TestDeliver_WhenAKeptConnectionIsStale_TakesAnother(t *testing.T) {
	for _, body := range []string{"", "hello"} {
		var seen recorder
		url := rawServer(t, func(_ int, conn *net.TCPConn) {
			requests(conn, func(req *http.Request, b []byte) bool {
				seen.add(req, b)
				io.WriteString(conn, okAnswer)
				return true
			})
		})
		c := newClient(t, Options{Retries: 0})
		transport := c.transport.(*http.Transport)
		var conns []*countedConn
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			conns = append(conns, conn.(*countedConn))
			return conn, err
		}
		m := message(url)
		m.Body = []byte(body)
		c.Deliver(context.Background(), m)
		conns[0].seal() // as if it were closed at this very moment
		got := c.Deliver(context.Background(), m)
		if got.Outcome != runner.Delivered || got.Attempts != 1 || seen.count() != 2 || len(conns) > 3 {
			t.Errorf("got %+v after %d requests on %d connections", got, seen.count(), len(conns))
		}
	}
}
