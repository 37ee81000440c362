package cmd

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// claimerFunc is a runner.Claimer of which only Claim is used.
type claimerFunc struct {
	runner.Claimer
	claim func(ids []runner.EventID)
}

func (c claimerFunc) Claim(_ context.Context, req runner.ClaimRequest) ([]bool, error) {
	c.claim(req.IDs)
	won := make([]bool, len(req.IDs))
	for i := range won {
		won[i] = true
	}
	return won, nil
}

// README.md: an id waits at most 100 ms for others. Here one comes every 7 ms,
// so that a wait for a pause in the input would last for all of them.
func TestClaimStream_WhenIDsTrickleIn_NoneWaitsLongerThan100ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, feed := io.Pipe()
		var mu sync.Mutex
		came := map[runner.EventID]time.Time{}
		answered := 0
		c := &claiming{out: io.Discard, claims: claimerFunc{claim: func(ids []runner.EventID) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				answered++
				if waited := time.Since(came[id]); waited > 100*time.Millisecond {
					t.Errorf("%s waited %v", id, waited)
				}
			}
		}}}
		go func() {
			for i := range 200 {
				id := runner.EventID(fmt.Sprint("id", i))
				mu.Lock()
				came[id] = time.Now()
				mu.Unlock()
				fmt.Fprintln(feed, id)
				time.Sleep(7 * time.Millisecond)
			}
			feed.Close()
		}()
		if err := c.stream(context.Background(), in); err != nil {
			t.Fatal(err)
		}
		if answered != 200 {
			t.Errorf("%d of 200 answered", answered)
		}
	})
}

// lines is n different ids of 1000 bytes, one a line, made as they are read.
type lines struct {
	n    int
	rest string
}

func (l *lines) Read(p []byte) (int, error) {
	if l.rest == "" {
		if l.n == 0 {
			return 0, io.EOF
		}
		l.n--
		l.rest = fmt.Sprintf("%0999d\n", l.n)
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// 60,000 ids of 1 kB: 60 MB pass through, and at most a batch is held.
func TestClaimStream_WhenTheInputIsLong_MemoryStaysFlat(t *testing.T) {
	var (
		mu    sync.Mutex // two batches are under way at once
		most  uint64
		total int
	)
	c := &claiming{out: io.Discard, claims: claimerFunc{claim: func(ids []runner.EventID) {
		if len(ids) > streamBatch {
			t.Errorf("a batch of %d ids", len(ids))
		}
		mu.Lock()
		defer mu.Unlock()
		total += len(ids)
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	}}}
	if err := c.stream(context.Background(), &lines{n: 60_000}); err != nil {
		t.Fatal(err)
	}
	// A batch has at most 3 MB; two are under way, two are being gathered.
	if total != 60_000 || most > 32<<20 {
		t.Errorf("%d ids, %d MB in use", total, most>>20)
	}
}

// What was answered before a bad line stands, and nothing behind it is claimed.
func TestClaimStream_WhenALineIsBad_ThoseBeforeItAreClaimedAndNoneBehind(t *testing.T) {
	var got []runner.EventID
	var out strings.Builder
	c := &claiming{out: &out, claims: claimerFunc{claim: func(ids []runner.EventID) { got = append(got, ids...) }}}
	err := c.stream(context.Background(), strings.NewReader("a\nb\n"+strings.Repeat("x", 70_000)+"\nc\n"))
	if err == nil || !strings.Contains(err.Error(), "line 3") || fmt.Sprint(got) != "[a b]" || out.String() != "a\nb\n" {
		t.Errorf("claimed %v, printed %q, error %v", got, out.String(), err)
	}
}
