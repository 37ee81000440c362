package cmd_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// request is what a receiver keeps of one request.
type request struct {
	id     string // Idempotency-Key
	hash   string // SHA-256 of the body
	path   string
	header http.Header
	began  time.Time // when its header was there
	ended  time.Time // when its answer began
	nth    int       // its number among those of its id, from 1
}

// receiver is a web server that remembers what it was sent.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	got    []request
	times  map[string]int // how often each id came
	flying int
	most   int // requests in flight at once
	answer func(w http.ResponseWriter, r request)
}

// newReceiver starts a receiver that answers each request by answer, with 204
// if that is nil.
func newReceiver(t testing.TB, answer func(w http.ResponseWriter, r request)) *receiver {
	if answer == nil {
		answer = func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusNoContent) }
	}
	v := &receiver{answer: answer, times: map[string]int{}}
	v.Server = httptest.NewServer(v)
	t.Cleanup(v.Close)
	return v
}

// ServeHTTP implements http.Handler. A request counts as in flight until its
// answer begins: its sender cannot know sooner that it may send another.
func (v *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := v.begin(r)
	sum := sha256.New()
	_, err := io.Copy(sum, r.Body)
	v.mu.Lock()
	v.got[at].hash = hex.EncodeToString(sum.Sum(nil))
	req := v.got[at]
	v.mu.Unlock()
	counted := &countedAnswer{ResponseWriter: w, begun: sync.OnceFunc(func() { v.end(at) })}
	defer counted.begun()
	if err == nil { // else the sender is gone
		v.answer(counted, req)
	}
}

func (v *receiver) begin(r *http.Request) (at int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flying++
	v.most = max(v.most, v.flying)
	id := r.Header.Get("Idempotency-Key")
	v.times[id]++
	v.got = append(v.got, request{id: id, path: r.URL.Path, header: r.Header, began: time.Now(), nth: v.times[id]})
	return len(v.got) - 1
}

func (v *receiver) end(at int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flying--
	v.got[at].ended = time.Now()
}

// countedAnswer tells when an answer begins.
type countedAnswer struct {
	http.ResponseWriter
	begun func()
}

func (c *countedAnswer) Write(b []byte) (int, error) {
	c.begun()
	return c.ResponseWriter.Write(b)
}

func (c *countedAnswer) WriteHeader(status int) {
	c.begun()
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController through.
func (c *countedAnswer) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// requests are those so far, in the order in which they came.
func (v *receiver) requests() []request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.got)
}

// inFlight is how many are in flight, and how many were at most.
func (v *receiver) inFlight() (now, most int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.flying, v.most
}

// eachOnce checks that each id came once, and returns how many did.
func (v *receiver) eachOnce(t testing.TB) (n int) {
	t.Helper()
	for _, r := range v.requests() {
		if r.nth > 1 {
			t.Errorf("%q came %d times", r.id, r.nth)
		}
	}
	return len(v.requests())
}

// wantOne checks that exactly one request came, with this id.
func (v *receiver) wantOne(t testing.TB, id string) {
	t.Helper()
	if got := v.requests(); len(got) != 1 || got[0].id != id {
		t.Errorf("%d requests came, not one of %q: %+v", len(got), id, got)
	}
}

// reset breaks the connection of the request instead of answering it.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

// sha is the SHA-256 of a body, as receivers and dead letters have it.
func sha(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}
