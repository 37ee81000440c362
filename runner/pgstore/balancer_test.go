package pgstore

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// balancer leads each new connection to the server that pick tells of the
// connection's number.
type balancer struct {
	listener net.Listener

	mu    sync.Mutex
	pick  func(n int) string
	n     int
	conns []net.Conn
}

// balance starts a balancer and returns it with the URL of serverURL's
// database through it.
func balance(t *testing.T, serverURL string, pick func(n int) string) (*balancer, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: l, pick: pick}
	var wg sync.WaitGroup
	wg.Go(func() { b.accept(&wg) })
	t.Cleanup(func() {
		l.Close()
		b.switchTo(pick)
		wg.Wait()
	})
	u.Host = l.Addr().String()
	return b, u.String()
}

// switchTo closes the connections there are and picks another way from now on.
func (b *balancer) switchTo(pick func(n int) string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pick = pick
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

// count is how many connections there have been.
func (b *balancer) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

func (b *balancer) accept(wg *sync.WaitGroup) {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		server, err := net.Dial("tcp", b.pick(b.n))
		b.n++
		if err != nil {
			client.Close()
		} else {
			b.conns = append(b.conns, client, server)
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				wg.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // until one side is closed
					pair[0].Close()
				})
			}
		}
		b.mu.Unlock()
	}
}

// always picks one server.
func always(port int) func(int) string { return func(int) string { return at(port) } }

func at(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func hostOf(serverURL string) string {
	u, err := url.Parse(serverURL)
	if err != nil {
		panic(err)
	}
	return u.Host
}
