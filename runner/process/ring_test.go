package process

import (
	"bytes"
	"testing"
)

// FuzzRing compares a ring with the whole of what was written, in pieces of
// any size.
func FuzzRing(f *testing.F) {
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz"), 7, 3, 5)
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz"), 5, 5, 9)
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz"), 4, 13, 2)
	f.Add([]byte("abc"), 10, 1, 10)
	f.Fuzz(func(t *testing.T, all []byte, limit, piece, n int) {
		limit, piece, n = min(max(1, limit), 1<<10), max(1, piece), max(0, n)
		r := newRing(limit)
		for done := 0; done < len(all); {
			p := all[done:min(len(all), done+min(piece, len(all)))]
			if k, err := r.Write(p); k != len(p) || err != nil {
				t.Fatalf("Write() = %d, %v", k, err)
			}
			done += len(p)
			want := all[max(0, done-min(limit, n)):done]
			if got := r.Last(n); !bytes.Equal(got, want) {
				t.Fatalf("after %d bytes Last(%d) = %q, not %q", done, n, got, want)
			}
			if got := r.Dropped(); got != int64(max(0, done-limit)) {
				t.Fatalf("after %d bytes Dropped() = %d", done, got)
			}
		}
	})
}
