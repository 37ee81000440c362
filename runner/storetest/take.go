package storetest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func itoa(n int) string { return strconv.Itoa(n) }

// taking is unfinished with permission to take over.
func taking(take runner.TakeOver, names ...string) runner.ClaimRequest {
	req := unfinished(names...)
	req.Take = take
	return req
}

func testTake(t *testing.T, h Harness) {
	t.Run("TakesWhatItsFlagsNameAndNothingElse", func(t *testing.T) { testTakeFlags(t, h) })
	t.Run("WhenTaken_TheClaimIsTheTakers", func(t *testing.T) { testTaken(t, h) })
	t.Run("WhenBare_IsTakenByItsOwnRunOnly", func(t *testing.T) { testTakeBare(t, h) })
	t.Run("WhenThePayloadDiffers_IsNotTaken", func(t *testing.T) { testTakeHash(t, h) })
}

// claimIn makes a claim in the named state by its own claimer.
func claimIn(t *testing.T, p Place, s Store, id, state string) {
	t.Helper()
	req := unfinished(id)
	if state == "bare" {
		req = bare(id)
	}
	wantClaim(t, s, req, true)
	switch state {
	case "expired":
		expire(t, p, id)
	case "delivered", "failed", "in_doubt":
		wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Outcome(state), id), Token: req.Token}, runner.Settled)
	case "failed, expired", "delivered, expired":
		outcome, _, _ := strings.Cut(state, ",")
		wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Outcome(outcome), id), Token: req.Token}, runner.Settled)
		expire(t, p, id)
	}
}

func testTakeFlags(t *testing.T, h Harness) {
	states := []string{"bare", "unfinished", "expired", "delivered", "failed", "in_doubt", "failed, expired", "delivered, expired"}
	shown := map[string]string{
		"bare": "claimed", "expired": "in_doubt", "failed, expired": "failed", "delivered, expired": "delivered",
		"unfinished": "unfinished", "delivered": "delivered", "failed": "failed", "in_doubt": "in_doubt",
	}
	takes := map[string]runner.TakeOver{
		"expired": runner.TakeExpired, "failed": runner.TakeFailed,
		"failed, expired": runner.TakeFailed, "in_doubt": runner.TakeInDoubt,
	}
	const all = runner.TakeExpired | runner.TakeFailed | runner.TakeInDoubt | runner.TakeBareOfRun
	p, s := fresh(t, h)
	for take := range all + 1 {
		names, want := make([]string, len(states)), make([]bool, len(states))
		for i, state := range states {
			names[i] = state + " " + itoa(int(take))
			claimIn(t, p, s, names[i], state)
			want[i] = take&takes[state] != 0
		}
		// Outside a run there is no bare claim of the same run.
		wantClaim(t, s, taking(take, names...), want...)
		for i, state := range states {
			after := "unfinished"
			if !want[i] {
				after = shown[state]
			}
			wantState(t, s, names[i], after)
		}
	}
}

func testTaken(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	first := unfinished("a")
	first.Owner = "the first"
	wantClaim(t, s, first, true)
	expire(t, p, "a")
	exec(t, p, "update processed_events set claimed_at = '2001-01-01T00:00:00.000Z'")
	wantState(t, s, "a", "in_doubt")

	held := mustLock(t, s, "nightly")
	run := mustBegin(t, held, "").Run
	second := taking(runner.TakeExpired, "a")
	second.Owner, second.Run = "the second", &run
	wantClaim(t, held, second, true)
	got := wantLookup(t, s, "a")
	if got.Token != second.Token || got.Owner != second.Owner || got.RunID != run.ID || got.State() != "unfinished" {
		t.Errorf("the claim that was taken over reads as %+v, want it of %+v", got, second)
	}
	if got.ClaimedAt.Year() == 2001 {
		t.Errorf("the claim that was taken over is still of %v", got.ClaimedAt)
	}
	wantClaim(t, s, taking(runner.TakeExpired, "a"), false)

	// The late answer of the first changes nothing.
	late := runner.SettleRequest{Settlements: settleAll(runner.Delivered, "a"), Token: first.Token}
	wantSettle(t, s, late, runner.NotOwner)
	wantState(t, s, "a", "unfinished")

	wantSettle(t, held, runner.SettleRequest{Settlements: settleAll(runner.Failed, "a"), Token: second.Token, Run: &run}, runner.Settled)
	third := bare("a")
	third.Take = runner.TakeFailed
	wantClaim(t, s, third, true)
	got = wantLookup(t, s, "a")
	if got.State() != "claimed" || !got.FinishedAt.IsZero() || got.RunID != 0 {
		t.Errorf("the failed claim that was taken over reads as %+v, want a bare one without an outcome", got)
	}
}

func testTakeBare(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	run := mustBegin(t, held, "").Run
	otherHeld := mustLock(t, s, "hourly")
	otherRun := mustBegin(t, otherHeld, "").Run
	wantClaim(t, held, inRun(run, "mine", "settled", "twice"), true, true, true)
	wantClaim(t, s, bare("nobody's"), true)
	exec(t, p, "insert into processed_events (event_id) values ('program')")
	wantSettle(t, held, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "settled"), Run: &run}, runner.Settled)

	names := []string{"mine", "settled", "nobody's", "program"}
	req := taking(runner.TakeBareOfRun, names...)
	wantClaim(t, s, req, false, false, false, false)
	req.Token, req.Run = runner.NewToken(), &otherRun
	wantClaim(t, otherHeld, req, false, false, false, false)
	req.Token, req.Run = runner.NewToken(), &run
	wantClaim(t, held, req, true, false, false, false)
	// It is no bare claim any more.
	req.Token = runner.NewToken()
	wantClaim(t, held, req, false, false, false, false)
	wantState(t, s, "mine", "unfinished")

	plain := inRun(run, "twice")
	wantClaim(t, held, plain, false)
}

func testTakeHash(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	one, two := runner.HashBytes([]byte("1")), runner.HashBytes([]byte("2"))
	first := unfinished("same", "other", "none before", "none now")
	first.PayloadHashes = []string{one, one, "", one}
	wantClaim(t, s, first, true, true, true, true)
	expire(t, p, "same", "other", "none before", "none now")
	second := taking(runner.TakeExpired, "same", "other", "none before", "none now")
	second.PayloadHashes = []string{one, two, two, ""}
	wantClaim(t, s, second, true, false, true, true)
	for id, want := range map[string]string{"same": one, "other": one, "none before": two, "none now": one} {
		if got := wantLookup(t, s, id).PayloadHash; got != want {
			t.Errorf("the claim of %q has the payload hash %.8s, want %.8s", id, got, want)
		}
	}

	// Also where the same claimer repeats itself, and for every flag.
	held := mustLock(t, s, "nightly")
	run := mustBegin(t, held, "").Run
	req := inRun(run, "bare")
	req.PayloadHashes = []string{one}
	wantClaim(t, held, req, true)
	adopt := taking(runner.TakeBareOfRun|runner.TakeExpired|runner.TakeFailed|runner.TakeInDoubt, "bare")
	adopt.Run, adopt.PayloadHashes = &run, []string{two}
	wantClaim(t, held, adopt, false)
	adopt.PayloadHashes = []string{one}
	wantClaim(t, held, adopt, true)
}
