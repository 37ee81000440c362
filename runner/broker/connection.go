package broker

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// connection is a kept connection to the run above. http.Transport would bring
// goroutines and a silent repeat that a process of one call has no use for.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func newConnection(c net.Conn) *connection {
	return &connection{Conn: c, in: bufio.NewReader(c)}
}

// roundTrip sends a request and reads the head of its answer.
func (c *connection) roundTrip(path string, body []byte) (*http.Response, error) {
	head := "POST " + path + " HTTP/1.1\r\nHost: oncectl\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n"
	message := net.Buffers{[]byte(head), body}
	if _, err := message.WriteTo(c.Conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.in, nil)
}

// maxIdle bounds the connections that are kept: as many as a job's sends are
// likely to have in flight.
const maxIdle = 64

// pool keeps idle connections.
type pool struct {
	mu     sync.Mutex
	idle   []*connection
	closed bool
}

func (p *pool) get() *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	p.idle = p.idle[:last]
	return c
}

// put keeps c for the next call.
func (p *pool) put(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == maxIdle {
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}
