package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testRead(t *testing.T, h Harness) {
	t.Run("WhenTheStoreIsNew_FindsNothing", func(t *testing.T) {
		_, s := fresh(t, h)
		wantNoClaim(t, s, "a")
		wantEach(t, s, runner.ClaimFilter{})
	})
	t.Run("Lookup_FindsThoseThatExist", func(t *testing.T) { testLookup(t, h) })
	t.Run("Lookup_WhenManyIds", func(t *testing.T) {
		_, s := fresh(t, h)
		all := names("e", 5000)
		if _, err := s.Claim(t.Context(), bare(all...)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Lookup(t.Context(), ids(all...)); err != nil || len(got) != len(all) {
			t.Errorf("Lookup() of %d ids found %d, %v", len(all), len(got), err)
		}
	})
	t.Run("EachClaim_IsOldestFirst", func(t *testing.T) {
		p, s := fresh(t, h)
		wantNoClaim(t, s, "a") // makes the tables, where a query does
		wantClaim(t, s, bare("now"), true)
		exec(t, p, `insert into processed_events (event_id, claimed_at) values
			('c', '2024-01-01T00:00:00.000Z'), ('a', '2024-01-03T00:00:00.000Z'),
			('b', '2023-12-31T23:59:59.999Z'), ('d', '2024-01-01T00:00:00.001Z')`)
		wantEach(t, s, runner.ClaimFilter{}, "b", "c", "d", "a", "now")
	})
	t.Run("EachClaim_FiltersByPrefixLiterally", func(t *testing.T) { testPrefix(t, h) })
	t.Run("EachClaim_FiltersByDoubt", func(t *testing.T) {
		p, s := fresh(t, h)
		for _, state := range []string{"bare", "unfinished", "expired", "delivered", "failed", "in_doubt", "failed, expired"} {
			claimIn(t, p, s, state, state)
		}
		wantEach(t, s, runner.ClaimFilter{InDoubt: true}, "expired", "in_doubt")
		wantEach(t, s, runner.ClaimFilter{InDoubt: true, Prefix: "in"}, "in_doubt")
	})
	t.Run("EachClaim_FiltersByAge", func(t *testing.T) { testEachByAge(t, h) })
	t.Run("EachClaim_MayUseTheStoreMeanwhile", func(t *testing.T) { testEachMeanwhile(t, h) })
	t.Run("EachClaim_WhenTheCallbackFails_Stops", func(t *testing.T) { testEachStops(t, h) })
}

func testLookup(t *testing.T, h Harness) {
	_, s := fresh(t, h)
	wantClaim(t, s, bare("a", "b", "c"), true, true, true)
	got, err := s.Lookup(t.Context(), ids("c", "x", "a", "c", "C"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[runner.EventID]bool{}
	for _, c := range got {
		found[c.ID] = true
	}
	if len(got) != 2 || !found["a"] || !found["c"] {
		t.Errorf("Lookup() = %+v, want a and c, once each", got)
	}
	wantNoClaim(t, s)
}

func testEachByAge(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	wantClaim(t, s, bare("new", "hour", "day"), true, true, true)
	for id, age := range map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour} {
		at := time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000Z")
		exec(t, p, fmt.Sprintf("update processed_events set claimed_at = '%s' where event_id = '%s'", at, id))
	}
	wantEach(t, s, runner.ClaimFilter{Since: 59 * time.Minute}, "new")
	wantEach(t, s, runner.ClaimFilter{Since: 61 * time.Minute}, "hour", "new")
	wantEach(t, s, runner.ClaimFilter{Since: 25 * time.Hour, Prefix: "d"}, "day")
	wantEach(t, s, runner.ClaimFilter{Since: 30 * 24 * time.Hour}, "day", "hour", "new")
}

func testEachMeanwhile(t *testing.T, h Harness) {
	_, s := fresh(t, h)
	all := names("e", 2500) // more than one page or fetch
	if _, err := s.Claim(t.Context(), bare(all...)); err != nil {
		t.Fatal(err)
	}
	seen := map[runner.EventID]bool{}
	err := s.EachClaim(t.Context(), runner.ClaimFilter{Prefix: "e"}, func(c runner.Claim) error {
		seen[c.ID] = true
		if len(seen)%250 != 1 {
			return nil
		}
		_, err := s.Claim(t.Context(), bare("of "+string(c.ID)))
		return err
	})
	if err != nil || len(seen) != len(all) {
		t.Errorf("EachClaim() showed %d of %d claims, %v", len(seen), len(all), err)
	}
}

// each collects the ids that EachClaim shows.
func each(ctx context.Context, s runner.ClaimReader, f runner.ClaimFilter) ([]string, error) {
	var got []string
	err := s.EachClaim(ctx, f, func(c runner.Claim) error {
		got = append(got, string(c.ID))
		return nil
	})
	return got, err
}

func wantEach(t *testing.T, s runner.ClaimReader, f runner.ClaimFilter, want ...string) {
	t.Helper()
	got, err := each(t.Context(), s, f)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("EachClaim(%+v) showed %q, %v, want %q", f, got, err, want)
	}
}

func testPrefix(t *testing.T, h Harness) {
	_, s := fresh(t, h)
	all := []string{`a`, `a%`, `a%b`, `a_`, `a_b`, `a\`, `a\%`, `a\\`, `aXb`, `A%`, `ab`, `é`, `e` + "\u0301", `a'`, `a*`, `a?`, `a[b]`, `😀1`}
	for _, id := range all {
		wantClaim(t, s, bare(id), true)
	}
	for _, prefix := range append(all, "", "a%%", "_", "%", `\`, "e", "x", "😀") {
		var want []string
		for _, id := range all {
			if len(id) >= len(prefix) && id[:len(prefix)] == prefix {
				want = append(want, id)
			}
		}
		got, err := each(t.Context(), s, runner.ClaimFilter{Prefix: prefix})
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("EachClaim(prefix %q) showed %q, %v, want %q", prefix, got, err, want)
		}
	}
}

func testEachStops(t *testing.T, h Harness) {
	_, s := fresh(t, h)
	wantClaim(t, s, bare("a", "b", "c"), true, true, true)
	enough, n := errors.New("enough"), 0
	err := s.EachClaim(t.Context(), runner.ClaimFilter{}, func(runner.Claim) error {
		if n++; n == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 2 {
		t.Fatalf("EachClaim() = %v after %d calls, want the callback's error after 2", err, n)
	}
	wantClaim(t, s, bare("d"), true)
}
