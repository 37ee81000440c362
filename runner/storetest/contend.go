package storetest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func testContend(t *testing.T, h Harness) {
	t.Run("WhenManyClaimTheSame_EachHasOneWinner", func(t *testing.T) { testOneWinner(t, h) })
	t.Run("WhenBatchesAreInOppositeOrder_NoDeadlock", func(t *testing.T) { testOppositeOrder(t, h) })
	t.Run("WhenExpired_OneTakesIt", func(t *testing.T) { testOneTaker(t, h) })
}

// names makes n names that start with prefix.
func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = prefix + itoa(i)
	}
	return out
}

// contend lets claimers goroutines on a few handles each do their part at once.
func contend(t *testing.T, p Place, claimers int, part func(i int, s Store)) {
	t.Helper()
	handles := make([]Store, 8)
	for i := range handles {
		handles[i] = p.Open(t)
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range claimers {
		wg.Go(func() {
			<-start
			part(i, handles[i%len(handles)])
		})
	}
	close(start)
	wg.Wait()
}

// winners counts wins by id.
type winners struct {
	sync.Mutex
	of map[runner.EventID]int
}

func (w *winners) add(ids []runner.EventID, won []bool) {
	w.Lock()
	defer w.Unlock()
	for i, id := range ids {
		if won[i] {
			w.of[id]++
		}
	}
}

func (w *winners) wantOneEach(t *testing.T, n int) {
	t.Helper()
	if len(w.of) != n {
		t.Errorf("%d ids were won, want %d", len(w.of), n)
	}
	for id, c := range w.of {
		if c != 1 {
			t.Errorf("%q was won %d times", id, c)
		}
	}
}

func testOneWinner(t *testing.T, h Harness) {
	p, _ := fresh(t, h)
	const claimers, n, batch = 64, 200, 10
	w := winners{of: map[runner.EventID]int{}}
	contend(t, p, claimers, func(_ int, s Store) {
		all := ids(names("e", n)...)
		rand.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
		for part := range slices.Chunk(all, batch) {
			won, err := s.Claim(t.Context(), runner.ClaimRequest{IDs: part, Token: runner.NewToken()})
			if err != nil {
				t.Errorf("Claim() = %v", err)
				return
			}
			w.add(part, won)
		}
	})
	w.wantOneEach(t, n)
}

func testOppositeOrder(t *testing.T, h Harness) {
	p, _ := fresh(t, h)
	const n = 300
	w := winners{of: map[runner.EventID]int{}}
	contend(t, p, 16, func(i int, s Store) {
		for round := range 5 {
			batch := ids(names("r"+itoa(round)+"-", n)...)
			if i%2 == 1 {
				slices.Reverse(batch)
			}
			won, err := s.Claim(t.Context(), runner.ClaimRequest{IDs: batch, Token: runner.NewToken()})
			if err != nil {
				t.Errorf("Claim() = %v", err)
				return
			}
			w.add(batch, won)
		}
	})
	w.wantOneEach(t, 5*n)
}

// testOneTaker: the next claim wins an expired one, and it alone.
func testOneTaker(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	all := names("e", 20)
	wantClaim(t, s, unfinished(all...), slices.Repeat([]bool{true}, 20)...)
	expire(t, p, all...)
	w := winners{of: map[runner.EventID]int{}}
	contend(t, p, 16, func(_ int, s Store) {
		for _, id := range all {
			req := taking(runner.TakeExpired, id)
			won, err := s.Claim(t.Context(), req)
			if err != nil {
				t.Errorf("Claim() = %v", err)
				return
			}
			w.add(req.IDs, won)
		}
	})
	w.wantOneEach(t, len(all))
}
