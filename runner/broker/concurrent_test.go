package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// 200 claims, 8 at a time, half by one client that all share and half by
// clients of one call, as processes are; each id is claimed twice. Meanwhile the
// lock is lost and had again, over and over.
func TestServer_When200ClaimsComeEightAtATime_EachIDHasOneWinner(t *testing.T) {
	m := newMemory()
	s := serving(t, whole{m})
	shared := dial(t, s)
	var won [100]atomic.Int32
	next := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range next {
				c := shared
				if i%2 == 1 {
					c = Dial(s.Path())
				}
				id := runner.EventID(fmt.Sprint("id ", i/2))
				got, err := c.Claim(context.Background(), runner.ClaimRequest{IDs: []runner.EventID{id}, Token: runner.NewToken()})
				if err != nil {
					t.Errorf("claim %d: %v", i, err)
				} else if got[0] {
					won[i/2].Add(1)
				}
				if i%2 == 1 {
					c.Close()
				}
			}
		})
	}
	for i := range 200 {
		if i%10 == 5 {
			s.Hold()
			s.Serve(theRun, whole{m})
		}
		next <- i
	}
	close(next)
	workers.Wait()
	for i := range won {
		if n := won[i].Load(); n != 1 {
			t.Errorf("id %d was won %d times", i, n)
		}
	}
	if n := len(m.requests()); n != 200 {
		t.Errorf("the store was asked %d times", n)
	}
	if n := len(shared.pool.idle); n == 0 || n > 8 {
		t.Errorf("the shared client keeps %d connections", n)
	}
}
