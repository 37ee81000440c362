package storetest

import (
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// testTargets: the target tells a send from other claims.
func testTargets(t *testing.T, h Harness) {
	t.Run("WhenGiven_AreEachIds", func(t *testing.T) {
		p, s := fresh(t, h)
		req := unfinished("b", "a", "b", "c")
		req.Targets = []string{"b.example", "[::1]:8080", "again.example", ""}
		wantClaim(t, s, req, true, true, false, true)
		wantRows(t, p, "select event_id, target, payload_hash from processed_events order by event_id", "a|[::1]:8080|-", "b|b.example|-", "c|-|-")
		for id, want := range map[string]string{"a": "[::1]:8080", "b": "b.example", "c": ""} {
			if got := wantLookup(t, s, id).Target; got != want {
				t.Errorf("the claim of %q has the target %q, want %q", id, got, want)
			}
		}
		wantClaim(t, s, unfinished("plain"), true)
		if got := wantLookup(t, s, "plain").Target; got != "" {
			t.Errorf("a claim without a target has the target %q", got)
		}
	})
	t.Run("WhenTakenOver_IsTheTakers", func(t *testing.T) {
		p, s := fresh(t, h)
		claimAll(t, s, sending("a"))
		expire(t, p, "a")
		next := taking(runner.TakeExpired, "a")
		next.Targets = []string{"other.example"}
		claimAll(t, s, next)
		expire(t, p, "a")
		wantSweep(t, s, 1)
		wantRows(t, p, "select name from failed_jobs", "other.example")
	})
	t.Run("WhenThereAreNotAsManyAsIds_IsInvalid", func(t *testing.T) {
		_, s := fresh(t, h)
		for _, n := range []int{1, 3} {
			req := unfinished("a", "b")
			req.Targets = names("t", n)
			_, err := s.Claim(t.Context(), req)
			wantErr(t, "Claim of two ids with another number of targets", err, runner.ErrInvalid)
		}
		wantNoClaim(t, s, "a", "b")
	})
}
