//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// receiver is where messages go. It writes down each request before it answers,
// and answers as the seed, the id and the number of the try tell it to.
type receiver struct {
	port     string
	refusing atomic.Bool // connections are reset at once
	friendly atomic.Bool // faults are over
	answers  counter

	mu    sync.Mutex
	file  *os.File
	tries map[string]int
}

// request is a line of the receiver's file.
type request struct {
	At        int64  `json:"at"` // microseconds
	Store     string `json:"store"`
	ID        string `json:"id"`
	Body      string `json:"body"`
	Try       int    `json:"try"`
	Answer    string `json:"answer"`
	Processed bool   `json:"processed"` // the work was done
}

// answer is how a request may be answered, and how often of 1000.
type answer struct {
	name      string
	share     uint64
	processed bool
}

var allAnswers = []answer{
	{"200", 0, true}, // all the rest
	{"200 late", 60, true},
	{"502 after the work", 40, true},
	{"429", 60, false},
	{"400", 25, false},
	{"503 before the work", 10, false},
	{"hangs after the work", 8, true},
	{"hangs before the work", 4, false},
	{"reset after the work", 25, true},
	{"reset before the work", 15, false},
}

func (w *world) openReceiver() {
	l, err := net.Listen("tcp", ":0")
	check(err)
	w.receiver.port = fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	w.receiver.file, err = os.Create(w.evidence("requests"))
	check(err)
	w.receiver.tries = map[string]int{}
	s := &http.Server{Handler: http.HandlerFunc(w.receive)}
	go func() { _ = s.Serve(refuser{l, &w.receiver.refusing}) }() // until Close
	w.t.Cleanup(func() { _ = s.Close() })
}

// refuser resets connections as they come, as long as it is told to.
type refuser struct {
	net.Listener
	on *atomic.Bool
}

func (r refuser) Accept() (net.Conn, error) {
	for {
		c, err := r.Listener.Accept()
		if err != nil || !r.on.Load() {
			return c, err
		}
		reset(c)
	}
}

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0) // a reset in place of an orderly end
	c.Close()
}

// receiverAddr is the receiver's, as all hosts see it.
const receiverAddr = "10.78.0.1"

// url is where messages of that store go.
func (w *world) url(store string) string {
	return "http://" + receiverAddr + ":" + w.receiver.port + "/" + store
}

func (w *world) receive(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it did not come whole
	}
	req := request{Store: strings.Trim(r.URL.Path, "/"), ID: r.Header.Get("Idempotency-Key"), Body: string(body)}
	a := w.choose(&req)
	w.answers.add(a.name, 1)
	switch a.name {
	case "200 late":
		time.Sleep(time.Duration(req.Try%5+1) * 60 * time.Millisecond)
	case "502 after the work":
		rw.WriteHeader(http.StatusBadGateway)
	case "429":
		rw.Header().Set("Retry-After", fmt.Sprint(req.Try%2))
		rw.WriteHeader(http.StatusTooManyRequests)
	case "400":
		rw.WriteHeader(http.StatusBadRequest)
	case "503 before the work":
		rw.WriteHeader(http.StatusServiceUnavailable)
	case "hangs after the work", "hangs before the work":
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Second):
		}
	case "reset after the work", "reset before the work":
		if c, _, err := rw.(http.Hijacker).Hijack(); err == nil {
			reset(c)
		}
	}
}

// choose chooses the answer and writes the request down.
func (w *world) choose(req *request) answer {
	w.receiver.mu.Lock()
	defer w.receiver.mu.Unlock()
	name := req.Store + " " + req.ID
	w.receiver.tries[name]++
	req.Try = w.receiver.tries[name]
	req.At = time.Now().UnixMicro()
	a := answerFor(w.seed, name, req.Try)
	if w.friendly.Load() {
		a = allAnswers[0]
	}
	req.Answer, req.Processed = a.name, a.processed
	line, err := json.Marshal(req)
	check(err)
	_, err = w.receiver.file.Write(append(line, '\n'))
	check(err)
	return a
}

// answerFor is the answer to that try. Rows of the outbox, which are tried
// again whatever comes, are taken at the fourth.
func answerFor(seed uint64, name string, try int) answer {
	if try > 3 {
		return allAnswers[0]
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", seed, name, try)
	n := h.Sum64() >> 16 % 1000
	for _, a := range allAnswers[1:] {
		if n < a.share {
			return a
		}
		n -= a.share
	}
	return allAnswers[0]
}
