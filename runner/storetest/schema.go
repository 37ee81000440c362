package storetest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func testSchema(t *testing.T, h Harness) {
	t.Run("WhenNew_HasVersionZero", func(t *testing.T) {
		_, s := fresh(t, h)
		for range 2 { // looking does not make it
			st, err := s.SchemaStatus(t.Context())
			if err != nil || st.Version != 0 || st.Binary < 1 {
				t.Fatalf("SchemaStatus() = %+v, %v, want version 0", st, err)
			}
		}
	})
	t.Run("WhenApplied_HasTheBinarysVersion", func(t *testing.T) {
		p, s := fresh(t, h)
		for range 2 {
			st, err := s.ApplySchema(t.Context())
			if err != nil || st.Version != st.Binary || st.OldestBinary > st.Binary || st.OldestBinary < 1 {
				t.Fatalf("ApplySchema() = %+v, %v", st, err)
			}
		}
		wantRows(t, p, "select count(*) from schema_info", "1")
		for _, table := range []string{"processed_events", "failed_jobs", "outbox", "runs", "fences"} {
			wantRows(t, p, "select count(*) from "+table, "0")
		}
	})
	t.Run("WhenFirstUsed_MakesTheTables", func(t *testing.T) { testFirstUse(t, h) })
	t.Run("WhenTwentyUseItFirst_NoneFails", func(t *testing.T) { testFirstUses(t, h) })
	t.Run("WhenForNewerBinaries_IsRefused", func(t *testing.T) { testNewer(t, h) })
	t.Run("WhenNewerButReadable_Works", func(t *testing.T) {
		p, s := fresh(t, h)
		if _, err := s.ApplySchema(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, p, "update schema_info set version = 999")
		wantClaim(t, p.Open(t), bare("a"), true)
		st, err := p.Open(t).ApplySchema(t.Context())
		if err != nil || st.Version != 999 {
			t.Errorf("ApplySchema() = %+v, %v, want the newer version left alone", st, err)
		}
		wantRows(t, p, "select version from schema_info", "999")
	})
}

// testFirstUse: whatever comes first finds no tables and makes them.
func testFirstUse(t *testing.T, h Harness) {
	for name, use := range map[string]func(*testing.T, Store) error{
		"Begin": func(t *testing.T, s Store) error {
			_, err := mustLock(t, s, "nightly").Begin(t.Context(), beginRequest(""))
			return err
		},
		"Claim": func(t *testing.T, s Store) error { _, err := s.Claim(t.Context(), bare("a")); return err },
		"Settle": func(t *testing.T, s Store) error {
			_, err := s.Settle(t.Context(), runner.SettleRequest{Settlements: settleAll(runner.Failed, "a")})
			return err
		},
		"GiveBack": func(t *testing.T, s Store) error {
			_, err := s.GiveBack(t.Context(), runner.GiveBackRequest{IDs: ids("a")})
			return err
		},
		"Renew": func(t *testing.T, s Store) error {
			_, err := s.Renew(t.Context(), ids("a"), runner.NewToken(), longExpiry)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := fresh(t, h)
			if err := use(t, s); err != nil {
				t.Fatalf("%s as first use = %v", name, err)
			}
			if st, err := s.SchemaStatus(t.Context()); err != nil || st.Version != st.Binary {
				t.Errorf("SchemaStatus() after it = %+v, %v", st, err)
			}
		})
	}
}

func testFirstUses(t *testing.T, h Harness) {
	p := h.Fresh(t)
	var wg sync.WaitGroup
	var wins atomic.Int32
	start := make(chan struct{})
	for i := range 20 {
		s := p.Open(t)
		wg.Go(func() {
			<-start
			won, err := s.Claim(t.Context(), bare("mine "+itoa(i), "everybody's"))
			if err != nil {
				t.Errorf("Claim() as one of the first = %v", err)
				return
			}
			if !won[0] {
				t.Errorf("handle %d did not win its own id", i)
			}
			if won[1] {
				wins.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("the common id was won %d times", wins.Load())
	}
	wantRows(t, p, "select count(*) from processed_events", "21")
}

func testNewer(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, p, "update schema_info set version = 999, oldest_binary = 999")
	s = p.Open(t)
	_, err := s.Claim(t.Context(), bare("a"))
	wantErr(t, "Claim", err, runner.ErrRefused)
	_, err = s.Settle(t.Context(), runner.SettleRequest{Settlements: settleAll(runner.Failed, "a")})
	wantErr(t, "Settle", err, runner.ErrRefused)
	_, err = s.GiveBack(t.Context(), runner.GiveBackRequest{IDs: ids("a")})
	wantErr(t, "GiveBack", err, runner.ErrRefused)
	_, err = s.Renew(t.Context(), ids("a"), runner.NewToken(), longExpiry)
	wantErr(t, "Renew", err, runner.ErrRefused)
	_, err = s.Lookup(t.Context(), ids("a"))
	wantErr(t, "Lookup", err, runner.ErrRefused)
	_, err = each(t.Context(), s, runner.ClaimFilter{})
	wantErr(t, "EachClaim", err, runner.ErrRefused)
	_, err = s.ApplySchema(t.Context())
	wantErr(t, "ApplySchema", err, runner.ErrRefused)
	if held, lockErr := s.TryLock(t.Context(), lockID(t, "nightly")); lockErr != nil {
		wantErr(t, "TryLock", lockErr, runner.ErrRefused)
	} else {
		_, err = held.Begin(t.Context(), beginRequest(""))
		wantErr(t, "Begin", err, runner.ErrRefused)
		mustRelease(t, held)
	}
	// Whoever asks is told.
	if st, err := s.SchemaStatus(t.Context()); err != nil || st.Version != 999 || st.OldestBinary != 999 {
		t.Errorf("SchemaStatus() = %+v, %v", st, err)
	}
	wantRows(t, p, "select count(*) from processed_events", "0")
	wantRows(t, p, "select count(*) from runs", "0")
}
