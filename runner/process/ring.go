package process

import "sync"

// ring keeps the last bytes that were written to it. Its memory grows with
// what is written, up to the limit. It is safe for concurrent use: stdout and
// stderr may share one.
type ring struct {
	limit int

	mu    sync.Mutex
	buf   []byte
	next  int   // where the next byte goes once buf is full
	total int64 // bytes ever written
}

func newRing(limit int) *ring { return &ring{limit: limit} }

// Write never fails.
func (r *ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	r.total += int64(n)
	if len(p) >= r.limit {
		r.buf = append(r.buf[:0], p[len(p)-r.limit:]...)
		r.next = 0
		return n, nil
	}
	if free := r.limit - len(r.buf); free > 0 {
		k := min(free, len(p))
		r.buf = append(r.buf, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(r.buf[r.next:], p)
		r.next = (r.next + k) % r.limit
		p = p[k:]
	}
	return n, nil
}

// Last returns at most the last n bytes; none of a ring that is nil.
func (r *ring) Last(n int) []byte {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.buf))
	out := make([]byte, 0, n)
	skip := len(r.buf) - n
	for _, part := range [][]byte{r.buf[r.next:], r.buf[:r.next]} {
		k := min(skip, len(part))
		skip -= k
		out = append(out, part[k:]...)
	}
	return out
}

// Dropped is how many bytes are no longer kept.
func (r *ring) Dropped() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total - int64(len(r.buf))
}
