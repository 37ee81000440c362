package delivery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// errSealed is what a sealed connection answers to a write.
var errSealed = errors.New("the connection was sealed")

// countedConn counts the bytes that may have left, and can be sealed: after
// that nothing leaves any more. It is how a try knows whether its request was
// written.
type countedConn struct {
	net.Conn
	written atomic.Int64
	sealed  atomic.Bool
}

// Write counts b before it is written and takes back what was not, so that
// whoever looks in between sees too much rather than too little.
func (c *countedConn) Write(b []byte) (int, error) {
	c.written.Add(int64(len(b)))
	if c.sealed.Load() {
		c.written.Add(-int64(len(b)))
		return 0, errSealed
	}
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n - len(b)))
	return n, err
}

// seal ends all writing and returns how many bytes may have left. A write that
// runs at the same moment either is counted or does not happen.
func (c *countedConn) seal() int64 {
	c.sealed.Store(true)
	return c.written.Load()
}

// counted finds the countedConn below the TLS layers that the transport put on
// top, as it does behind a proxy.
func counted(conn net.Conn) (*countedConn, bool) {
	for conn != nil {
		if c, ok := conn.(*countedConn); ok {
			return c, true
		}
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil, false
		}
		conn = inner.NetConn()
	}
	return nil, false
}

// dialer makes counted connections within a time limit.
type dialer struct {
	net     net.Dialer
	tls     *tls.Config
	timeout time.Duration
}

// dial resolves and connects.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.net.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn}, nil
}

// dialTLS also does the handshake, in the same time limit, and counts above
// the TLS layer: what handshake and closing alerts write is no request.
func (d *dialer) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	raw, err := d.net.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	config := d.tls.Clone()
	config.ServerName = host
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return &countedConn{Conn: conn}, nil
}
