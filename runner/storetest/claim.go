package storetest

import (
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testClaim(t *testing.T, h Harness) {
	t.Run("WhenNew_IsWonOnce", func(t *testing.T) {
		p, s := fresh(t, h)
		wantClaim(t, s, bare("a"), true)
		wantClaim(t, s, bare("a"), false)
		wantClaim(t, p.Open(t), bare("a"), false)
	})
	t.Run("WhenSeveral_AnswersInTheirOrder", func(t *testing.T) {
		_, s := fresh(t, h)
		wantClaim(t, s, bare("b", "d"), true, true)
		wantClaim(t, s, bare("e", "d", "c", "b", "a"), true, false, true, false, true)
	})
	t.Run("WhenAnIdOccursTwice_IsWonAtItsFirstPlace", func(t *testing.T) {
		_, s := fresh(t, h)
		wantClaim(t, s, bare("x"), true)
		wantClaim(t, s, bare("b", "a", "b", "x", "a", "b", "x"), true, true, false, false, false, false, false)
		req := unfinished("c", "c")
		wantClaim(t, s, req, true, false)
		wantClaim(t, s, req, true, false)
	})
	t.Run("WhenEmpty_IsNothing", func(t *testing.T) {
		_, s := fresh(t, h)
		wantClaim(t, s, bare())
	})
	t.Run("WhenTheTokenIsRepeated_WinsAgain", func(t *testing.T) { testTokenRepeated(t, h) })
	t.Run("WhenClaimed_ShowsItsAttributes", func(t *testing.T) { testAttributes(t, h) })
	t.Run("WhenManyAtOnce_AnswersAll", func(t *testing.T) { testManyIDs(t, h) })
	t.Run("WhenThereAreNotAsManyHashesAsIds_IsInvalid", func(t *testing.T) {
		_, s := fresh(t, h)
		req := bare("a", "b")
		req.PayloadHashes = []string{runner.HashBytes(nil)}
		_, err := s.Claim(t.Context(), req)
		wantErr(t, "Claim of two ids with one hash", err, runner.ErrInvalid)
		wantNoClaim(t, s, "a", "b")
	})
}

// testTokenRepeated: the answer to the first request was lost.
func testTokenRepeated(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	wantClaim(t, s, bare("taken"), true)
	for name, req := range map[string]runner.ClaimRequest{
		"bare": bare("a", "taken", "b"), "unfinished": unfinished("c", "taken", "d"),
	} {
		wantClaim(t, s, req, true, false, true)
		wantClaim(t, s, req, true, false, true)
		wantClaim(t, p.Open(t), req, true, false, true)
		if got := wantLookup(t, s, string(req.IDs[0])); got.Token != req.Token {
			t.Errorf("%s: after the repeated request the claim has the token %s, want %s", name, got.Token, req.Token)
		}
	}
	held := mustLock(t, s, "nightly")
	req := inRun(mustBegin(t, held, "").Run, "e", "taken")
	wantClaim(t, held, req, true, false)
	wantClaim(t, held, req, true, false)

	// Once the event has an outcome, its claim was not lost.
	done := unfinished("done")
	wantClaim(t, s, done, true)
	wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "done"), Token: done.Token}, runner.Settled)
	wantClaim(t, s, done, false)
	wantState(t, s, "done", "delivered")
}

func testAttributes(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	run := mustBegin(t, held, "").Run
	req := inRun(run, "a", "b")
	req.Owner, req.Expires = "host-ä/17", 90*time.Minute
	req.PayloadHashes = []string{runner.HashBytes([]byte("one")), runner.HashBytes([]byte("two"))}
	wantClaim(t, held, req, true, true)
	got := wantLookup(t, p.Open(t), "b")
	if got.ID != "b" || got.Token != req.Token || got.RunID != run.ID || got.Owner != req.Owner ||
		got.PayloadHash != req.PayloadHashes[1] || got.Outcome != "" || got.Expired || !got.FinishedAt.IsZero() {
		t.Errorf("the claim reads as %+v, made by %+v", got, req)
	}
	if d := got.ExpiresAt.Sub(got.ClaimedAt); d < req.Expires-2*time.Millisecond || d > req.Expires+2*time.Millisecond {
		t.Errorf("the claim of %v expires %v after it was made", req.Expires, d)
	}
	if d := time.Since(got.ClaimedAt); d < -time.Second || d > time.Minute {
		t.Errorf("the claim was made at %v, but it is %v", got.ClaimedAt, time.Now())
	}

	wantClaim(t, s, bare("c"), true)
	got = wantLookup(t, s, "c")
	if got.RunID != 0 || got.PayloadHash != "" || !got.ExpiresAt.IsZero() || got.State() != "claimed" {
		t.Errorf("a bare claim outside a run reads as %+v", got)
	}
	wantRows(t, p, "select run_id, payload_hash, expires_at, outcome, finished_at from processed_events where event_id = 'c'", "-|-|-|-|-")
}

// testManyIDs: as many as a stream hands over at once, some claimed before.
func testManyIDs(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	const n = 10_000
	req := runner.ClaimRequest{IDs: make([]runner.EventID, n), Token: runner.NewToken()}
	for i := range req.IDs {
		req.IDs[i] = runner.EventID("event/" + runner.HashBytes([]byte{byte(i), byte(i >> 8)}))
	}
	for i := 0; i < n; i += 3 {
		req.IDs[i] = req.IDs[(i+1)%n] // a duplicate within the request
	}
	first := runner.ClaimRequest{IDs: req.IDs[:100], Token: runner.NewToken()}
	if _, err := s.Claim(t.Context(), first); err != nil {
		t.Fatalf("Claim() = %v", err)
	}
	won, err := s.Claim(t.Context(), req)
	if err != nil {
		t.Fatalf("Claim() of %d ids = %v", n, err)
	}
	seen := map[runner.EventID]bool{}
	for _, id := range first.IDs {
		seen[id] = true
	}
	for i, id := range req.IDs {
		if won[i] == seen[id] {
			t.Fatalf("place %d: won = %v, but the id was seen before: %v", i, won[i], seen[id])
		}
		seen[id] = true
	}
	if got := rows(t, p, "select count(*) from processed_events")[0]; got != itoa(len(seen)) {
		t.Errorf("there are %s claims, want %d", got, len(seen))
	}
}
