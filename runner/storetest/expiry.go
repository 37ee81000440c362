package storetest

import (
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testExpiry(t *testing.T, h Harness) {
	t.Run("WhenItsTimePasses_IsInDoubtAndWonAgain", func(t *testing.T) {
		p, s := fresh(t, h)
		req := unfinished("a", "b")
		req.Expires = 300 * time.Millisecond
		wantClaim(t, s, req, true, true)
		made := wantLookup(t, s, "a")
		next := p.Open(t)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			claim := wantLookup(t, s, "a")
			if claim.Expired {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the claim of 300 ms has not expired: %+v", claim)
			}
		}
		if d := time.Since(made.ClaimedAt); d < req.Expires-5*time.Millisecond {
			t.Errorf("the claim of %v expired after %v", req.Expires, d)
		}
		wantState(t, s, "a", "in_doubt")
		wantClaim(t, next, bare("a"), false)
		wantClaim(t, next, unfinished("a"), false)
		wantClaim(t, next, taking(runner.TakeExpired, "a"), true)
		wantState(t, s, "a", "unfinished")
		wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "a", "b"), Token: req.Token},
			runner.NotOwner, runner.Settled)
	})
	t.Run("WhenTheShortest_ExpiresAtOnce", func(t *testing.T) {
		_, s := fresh(t, h)
		req := unfinished("a")
		req.Expires = time.Nanosecond
		wantClaim(t, s, req, true)
		for !wantLookup(t, s, "a").Expired {
			time.Sleep(time.Millisecond)
		}
	})
	t.Run("WhenRenewed_LivesOn", func(t *testing.T) { testRenew(t, h) })
}

func testRenew(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	mine := unfinished("soon", "late", "done", "given")
	mine.Expires = time.Minute
	wantClaim(t, s, mine, true, true, true, true)
	plain := bare("bare")
	plain.Token = mine.Token
	wantClaim(t, s, plain, true)
	wantClaim(t, s, unfinished("theirs"), true)
	wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Failed, "done"), Token: mine.Token}, runner.Settled)
	if _, err := s.GiveBack(t.Context(), runner.GiveBackRequest{IDs: ids("given"), Token: mine.Token}); err != nil {
		t.Fatal(err)
	}
	// Late, but nobody has taken it over.
	expire(t, p, "late")
	theirs := wantLookup(t, s, "theirs")

	n, err := s.Renew(t.Context(), ids("soon", "late", "done", "given", "bare", "theirs", "soon"), mine.Token, 2*time.Hour)
	if err != nil || n != 2 {
		t.Fatalf("Renew() = %d, %v, want 2", n, err)
	}
	for _, id := range []string{"soon", "late"} {
		if left := time.Until(wantLookup(t, s, id).ExpiresAt); left < 119*time.Minute || left > 121*time.Minute {
			t.Errorf("the claim of %q that was renewed for two hours expires in %v", id, left)
		}
	}
	if got := wantLookup(t, s, "theirs"); !got.ExpiresAt.Equal(theirs.ExpiresAt) {
		t.Errorf("another's claim was renewed until %v", got.ExpiresAt)
	}
	wantState(t, s, "bare", "claimed")
	wantState(t, s, "done", "failed")
	if n, err := s.Renew(t.Context(), nil, mine.Token, time.Hour); n != 0 || err != nil {
		t.Errorf("Renew() of nothing = %d, %v", n, err)
	}
}
