package pgstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// A session lock behind a pooler excludes nobody and is left behind, so that
// the way a lock is held must follow from what is in between.
func TestPooler_WhenInBetween_IsRecognised(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		h := take(t, open(t, via, schema))
		_, behind := h.claims.(*pooled)
		if want := via != direct; behind != want {
			t.Errorf("the lock takes the connection for pooled: %v, want %v", behind, want)
		}
		if n := len(holders(t, direct, schema)); n != 1 {
			t.Errorf("%d server processes hold the lock, want 1", n)
		}
		if n := len(transactions(t, direct, schema)); n == 1 != behind {
			t.Errorf("%d transactions are open", n)
		}
	})
}

// Statement pooling keeps nothing for a lock to live in.
func TestPooler_WhenItPoolsStatements_IsRefused(t *testing.T) {
	t.Parallel()
	direct, schema := pgtest.Schema(t)
	via := pgtest.Bouncer(t, direct, "statement")
	s := openWith(t, Config{ConnString: via, Schema: schema, StoreWait: time.Second})
	h, err := s.TryLock(t.Context(), nightly(schema))
	if err == nil {
		_ = h.Release(t.Context())
		t.Fatal("TryLock() gave a lock")
	}
	if errors.Is(err, runner.ErrBusy) || !strings.Contains(err.Error(), "statement pooling") {
		t.Fatalf("TryLock() = %v, want a word on statement pooling", err)
	}
	if left := holders(t, direct, schema); len(left) > 0 {
		t.Fatalf("the lock is held by %q", left)
	}
}

func TestPooler_WhenTwelveTakeALock_OneWins(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		var won, busy atomic.Int32
		var wg sync.WaitGroup
		for range 12 {
			s := open(t, via, schema)
			wg.Go(func() {
				_, err := s.TryLock(t.Context(), nightly(schema)) // open to the end of the test
				switch {
				case err == nil:
					won.Add(1)
				case errors.Is(err, runner.ErrBusy):
					busy.Add(1)
				default:
					t.Errorf("TryLock() = %v", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || busy.Load() != 11 {
			t.Errorf("%d won and %d found it busy, want 1 and 11", won.Load(), busy.Load())
		}
	})
}

// What a killed client leaves is its closed sockets.
func TestPooler_WhenTheHolderIsKilled_NothingIsLeft(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		proxy, through := pgtest.NewProxy(t, via)
		h := take(t, open(t, through, schema))
		run := beginRunOf(t, h)
		wantWon(t, h, claimOf(&run, "a"), true)
		proxy.CloseAll()
		wantLost(t, h, soon)
		until(t, "no process has the lock", soon, func() bool { return len(holders(t, direct, schema)) == 0 })
		until(t, "no transaction is open", soon, func() bool { return len(transactions(t, direct, schema)) == 0 })
		again := take(t, open(t, via, schema))
		wantWon(t, again, claimOf(nil, "a"), false)
	})
}

func TestPooler_When200AreClaimedByFour_NoneFails(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		h := take(t, open(t, via, schema))
		run := beginRunOf(t, h)
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range 4 {
			// Two by the run, as its broker would, and two alone; all
			// together win each of 100 ids once.
			c, by := runner.Claimer(h), &run
			if i%2 == 1 {
				c, by = open(t, via, schema), nil
			}
			wg.Go(func() {
				for n := range 50 {
					got, err := c.Claim(t.Context(), claimOf(by, fmt.Sprint("event/", i/2*50+n)))
					if err != nil {
						t.Errorf("Claim() = %v", err)
						return
					}
					if got[0] {
						won.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if won.Load() != 100 {
			t.Errorf("100 ids were won %d times", won.Load())
		}
	})
}

// A run needs two server connections; a pool of one must not hang it.
func TestPooler_WhenItHasOneConnection_TheErrorSaysSo(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct, schema := pgtest.Schema(t)
			s := open(t, pgtest.Bouncer(t, direct, mode, "default_pool_size = 1"), schema)
			h, err := s.TryLock(t.Context(), nightly(schema))
			if err == nil {
				_, err = h.Begin(t.Context(), beginRequest())
				_ = h.Release(t.Context())
			}
			wantErr(t, "a run with a pool of one", err, runner.ErrRefused)
			if !strings.Contains(err.Error(), "default_pool_size") {
				t.Errorf("the error does not name the pool's size: %v", err)
			}
			if left := holders(t, direct, schema); len(left) > 0 {
				t.Errorf("the lock is still held by %q", left)
			}
			// The pool is as good as before.
			wantWon(t, open(t, s.config.ConnString, schema), claimOf(nil, "a"), true)
		})
	}
}

// Two locks use up a pool of two: their claims work or say why not.
func TestPooler_WhenTwoLocksFillIt_NoneHangs(t *testing.T) {
	t.Parallel()
	direct, schema := pgtest.Schema(t)
	via := pgtest.Bouncer(t, direct, "transaction", "default_pool_size = 2")
	wantWon(t, open(t, via, schema), claimOf(nil, "tables"), true)
	var wg sync.WaitGroup
	for i := range 2 {
		s := open(t, via, schema)
		wg.Go(func() {
			name := fmt.Sprint("lock/", i)
			h, err := s.TryLock(t.Context(), runner.LockID{Name: name, Key: runner.LockKey(schema, name)})
			if err == nil {
				var b runner.Begun
				if b, err = h.Begin(t.Context(), beginRequest()); err == nil {
					_, err = h.Claim(t.Context(), claimOf(&b.Run, name))
				}
				_ = h.Release(t.Context())
			}
			if err != nil && !strings.Contains(err.Error(), "default_pool_size") {
				t.Errorf("lock %d: %v, want success or a word on the pool", i, err)
			}
		})
	}
	wg.Wait()
	take(t, open(t, via, schema))
}
