package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy is a network between a client and a server that can fail.
type Proxy struct {
	listener net.Listener
	target   string
	url      string // through the proxy

	mu     sync.Mutex
	conns  map[net.Conn]bool // false: silent
	silent bool
	cut    func(fromServer []byte) bool
}

// NewProxy starts a proxy in front of the server at serverURL and returns it
// with the URL through it.
func NewProxy(t testing.TB, serverURL string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: u.Host, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() { p.accept(&wg) })
	t.Cleanup(func() {
		l.Close()
		p.CloseAll()
		wg.Wait()
	})
	u.Host = l.Addr().String()
	u.RawQuery = "sslmode=disable"
	p.url = u.String()
	return p, p.url
}

// URL is the server's URL through the proxy.
func (p *Proxy) URL() string { return p.url }

// Connections counts those that clients have made so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

// Silence drops all bytes from now on, without closing anything, or lets them
// pass again. What was dropped stays lost.
func (p *Proxy) Silence(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = on
}

// SilenceOpen is Silence for the connections that there are, whose closing is
// not passed on either; new ones pass.
func (p *Proxy) SilenceOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		p.conns[c] = false
	}
}

// CutWhen closes a connection instead of passing on the first bytes from the
// server for which f is true; then f is forgotten.
func (p *Proxy) CutWhen(f func(fromServer []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = f
}

// CloseAll closes all connections.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) accept(wg *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		wg.Go(func() { p.copy(server, client, false) })
		wg.Go(func() { p.copy(client, server, true) })
	}
}

func (p *Proxy) copy(to, from net.Conn, fromServer bool) {
	defer func() {
		from.Close()
		if p.passes(from) {
			to.Close()
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			pass, cut := p.decide(from, b[:n], fromServer)
			if cut {
				return
			}
			if pass {
				if _, err := to.Write(b[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// passes tells whether SilenceOpen has not come over the connection.
func (p *Proxy) passes(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[c]
}

func (p *Proxy) decide(from net.Conn, b []byte, fromServer bool) (pass, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent || !p.conns[from] {
		return false, false
	}
	if fromServer && p.cut != nil && p.cut(b) {
		p.cut = nil
		return false, true
	}
	return true, false
}

// String tells where the proxy listens.
func (p *Proxy) String() string { return fmt.Sprint(p.listener.Addr()) }
