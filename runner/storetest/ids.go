package storetest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/oncectl/oncectl/runner"
)

// oddIDs are ids that something on the way to a table might take for one
// another: case, spaces, Unicode's normal forms, numbers, patterns, quotes.
func oddIDs() []string {
	long := strings.Repeat("x", runner.MaxIDBytes-1)
	return []string{
		"a", "A", "a ", " a", "a  ", "  a", "ab", "ab-", "a-b", "a b", "a_b", "a%b", "a%", "%", "_", `a\b`, `a\\b`, `\`, `\x61`, `\u0061`,
		"é", "e\u0301", "É", "\u212b", "\u00c5", "A\u030a", "ß", "ss", "SS", "ẞ", "ﬁ", "fi", "I", "ı", "i", "İ", "i\u0307",
		"ⅷ", "viii", "²", "2", "１", "a\u00a0b", "a\u200bb", "\ufeffa", "\u00ad", "a\u00adb", "\u2028", "\ufffd", "\U0010ffff", "😀", "👍🏽", "👍",
		"1", "1.0", "01", "1e0", "+1", "-1", "0x1", "1_0", "١", "0", "-0", "00", "1e400", "9223372036854775808", "9223372036854775807", "nan", "NaN", "inf",
		"null", "NULL", "true", "t", "''", "'", `"`, `""`, "`", "$1", "?", "?1", ":a", "@a", "{}", "[]", `["a"]`, `{"a":1}`, "{a,b}", "(a)", "a,b", "--", "--help", "-h", "-x", "-",
		"/*", "; drop table processed_events", "%s", "%!s(MISSING)", "&amp;", "<b>",
		long + "x", long + "y", long + "X", long, strings.Repeat("é", runner.MaxIDBytes/2), strings.Repeat("😀", runner.MaxIDBytes/4),
	}
}

func testIDs(t *testing.T, h Harness) {
	t.Run("WhenTheyLookAlike_AreDifferent", func(t *testing.T) { testOddIDs(t, h) })
	t.Run("WhenRandom_AreWonOnceAndReadBack", func(t *testing.T) { testRandomIDs(t, h) })
}

// testOddIDs claims them one at a time and all at once: an implementation may
// pass one and many in different ways.
func testOddIDs(t *testing.T, h Harness) {
	_, s := fresh(t, h)
	odd := oddIDs()
	for i, id := range odd {
		if _, err := runner.ParseEventID(id); err != nil {
			t.Fatalf("the suite's id %d: %v", i, err)
		}
		wantClaim(t, s, unfinished(id), true)
		if got := wantLookup(t, s, id).ID; string(got) != id {
			t.Fatalf("Lookup(%q) shows the id %q", id, got)
		}
	}
	for _, id := range odd {
		wantClaim(t, s, bare(id), false)
	}
	got, err := each(t.Context(), s, runner.ClaimFilter{})
	if err != nil || len(got) != len(odd) {
		t.Fatalf("EachClaim() shows %d claims, %v, want %d", len(got), err, len(odd))
	}
	settled, err := s.Settle(t.Context(), runner.SettleRequest{Settlements: settleAll(runner.Failed, odd...)})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range settled {
		if a != runner.Settled {
			t.Errorf("Settle(%q) = %v", odd[i], a)
		}
	}

	_, s = fresh(t, h)
	won, err := s.Claim(t.Context(), bare(odd...))
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range won {
		if !w {
			t.Errorf("%q was not won: taken for another id of the request", odd[i])
		}
	}
	if got, err := s.Lookup(t.Context(), ids(odd...)); err != nil || len(got) != len(odd) {
		t.Errorf("Lookup() found %d claims, %v, want %d", len(got), err, len(odd))
	}
}

// eventID generates valid ids, among them some that share all but an end.
func eventID() *rapid.Generator[runner.EventID] {
	return rapid.Custom(func(t *rapid.T) runner.EventID {
		s := rapid.OneOf(
			rapid.StringN(1, 8, 32),
			rapid.StringN(1, -1, runner.MaxIDBytes),
			rapid.SampledFrom(oddIDs()),
			rapid.StringMatching(`[0-9eE+.x -]{1,6}`),
		).Filter(func(s string) bool { _, err := runner.ParseEventID(s); return err == nil }).Draw(t, "id")
		return runner.EventID(s)
	})
}

func testRandomIDs(t *testing.T, h Harness) {
	_, s := fresh(t, h)
	seen := map[runner.EventID]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		batch := rapid.SliceOfN(eventID(), 1, 20).Draw(rt, "ids")
		won, err := s.Claim(t.Context(), runner.ClaimRequest{IDs: batch, Token: runner.NewToken()})
		if err != nil {
			rt.Fatalf("Claim(%q) = %v", batch, err)
		}
		distinct := map[runner.EventID]bool{}
		for i, id := range batch {
			if won[i] == seen[id] {
				rt.Errorf("Claim(%q): won = %v, but it was claimed before: %v", id, won[i], seen[id])
			}
			seen[id], distinct[id] = true, true
		}
		got, err := s.Lookup(t.Context(), batch)
		if err != nil || len(got) != len(distinct) {
			rt.Errorf("Lookup(%q) found %d claims, %v, want %d", batch, len(got), err, len(distinct))
		}
		for _, c := range got {
			if !distinct[c.ID] {
				rt.Errorf("Lookup(%q) shows %q", batch, c.ID)
			}
		}
	})
}
