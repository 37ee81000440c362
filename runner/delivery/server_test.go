package delivery

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/oncectl/oncectl/runner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient makes a client that neither waits nor jitters between its tries.
func newClient(t testing.TB, o Options) *Client {
	t.Helper()
	o.Backoff = 1
	o.BackoffMax = 1
	c := New(o, NewGate(max(o.Concurrency, 4)))
	c.random = noJitter
	t.Cleanup(c.Close)
	return c
}

// rawServer accepts connections and leaves each to serve.
func rawServer(t testing.TB, serve func(n int, conn *net.TCPConn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() { serve(n, conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// requests reads requests from conn, whole, and calls each with them; it ends
// when the other side does or each says false.
func requests(conn net.Conn, each func(req *http.Request, body []byte) bool) {
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil || !each(req, body) {
			return
		}
	}
}

// reset closes conn so that the other side sees a reset.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

func message(url string) runner.Message {
	return runner.Message{ID: "order/4711", URL: url, Body: []byte("hello")}
}

// recorder counts and keeps what a server got.
type recorder struct {
	mu     sync.Mutex
	bodies []string
	keys   []string
	times  []time.Time
	header []http.Header
}

func (r *recorder) add(req *http.Request, body []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, string(body))
	r.keys = append(r.keys, req.Header.Get("Idempotency-Key"))
	r.times = append(r.times, time.Now())
	h := req.Header.Clone()
	h.Set("X-Content-Length", req.Header.Get("Content-Length"))
	r.header = append(r.header, h)
	return len(r.bodies)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}
