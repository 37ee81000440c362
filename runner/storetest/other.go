package storetest

import (
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// testOther: programs that know nothing of oncectl insert into the same tables
// and take part in the same guarantees.
func testOther(t *testing.T, h Harness) {
	t.Run("WhenAProgramInserts_ItsClaimIsBare", func(t *testing.T) {
		p, s := fresh(t, h)
		wantNoClaim(t, s, "a")
		if _, err := s.ApplySchema(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, p, "insert into processed_events (event_id, claimed_at) values ('a', '2024-01-02T03:04:05.000Z')")
		exec(t, p, "insert into processed_events (event_id) values ('b') on conflict do nothing")
		wantClaim(t, s, bare("a", "b", "c"), false, false, true)
		const all = runner.TakeExpired | runner.TakeFailed | runner.TakeInDoubt | runner.TakeBareOfRun
		wantClaim(t, s, taking(all, "a", "b"), false, false)
		got := wantLookup(t, s, "a")
		if got.State() != "claimed" || got.Token != "" || got.Owner != "" || got.ClaimedAt.UTC().String() != "2024-01-02 03:04:05 +0000 UTC" {
			t.Errorf("the program's claim reads as %+v", got)
		}
		wantEach(t, s, runner.ClaimFilter{Prefix: "a"}, "a")
	})
	t.Run("WhenOncectlClaimed_TheProgramsInsertDoesNothing", func(t *testing.T) {
		p, s := fresh(t, h)
		wantClaim(t, s, bare("a"), true)
		exec(t, p, "insert into processed_events (event_id) values ('a'), ('b') on conflict do nothing")
		wantRows(t, p, "select event_id, token is not null and owner is not null from processed_events where event_id = 'a'", "a|"+truth(t, p))
		wantClaim(t, s, bare("b"), false)
	})
	t.Run("WhenAProgramDeletesItsRow_TheIdIsFree", func(t *testing.T) {
		p, s := fresh(t, h)
		wantClaim(t, s, bare("a"), true)
		exec(t, p, "delete from processed_events where event_id = 'a'")
		wantClaim(t, s, bare("a"), true)
	})
}
