package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testSettle(t *testing.T, h Harness) {
	t.Run("WhenOwned_IsSettledOnce", func(t *testing.T) { testSettleOwned(t, h) })
	t.Run("WhenNotClaimed_SaysSo", func(t *testing.T) {
		p, s := fresh(t, h)
		letter := runner.Settlement{ID: "a", Outcome: runner.Failed, DeadLetter: sendLetter("a")}
		wantSettle(t, s, runner.SettleRequest{Settlements: []runner.Settlement{letter}}, runner.NotClaimed)
		wantRows(t, p, "select count(*) from failed_jobs", "0")
		wantSettle(t, s, runner.SettleRequest{})
	})
	t.Run("WhenAnotherOwns_IsRefused", func(t *testing.T) { testSettleNotOwner(t, h) })
	t.Run("WhenItHasAnotherOutcome_OnlyDoubtIsResolved", func(t *testing.T) { testSettleAgain(t, h) })
	t.Run("WithoutAnOwner_SettlesAnybodys", func(t *testing.T) {
		// `oncectl done` by hand, outside a run.
		p, s := fresh(t, h)
		wantClaim(t, s, unfinished("a"), true)
		wantClaim(t, s, bare("b"), true)
		exec(t, p, "insert into processed_events (event_id) values ('c')")
		wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "a", "b", "c", "d")},
			runner.Settled, runner.Settled, runner.Settled, runner.NotClaimed)
	})
	t.Run("WhenLateButNotTakenOver_IsSettled", func(t *testing.T) {
		p, s := fresh(t, h)
		req := unfinished("a")
		wantClaim(t, s, req, true)
		expire(t, p, "a")
		wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "a"), Token: req.Token}, runner.Settled)
		wantState(t, s, "a", "delivered")
	})
	t.Run("WithADeadLetter_SavesBothOrNone", func(t *testing.T) { testSettleLetter(t, h) })
}

func testSettleOwned(t *testing.T, h Harness) {
	_, s := fresh(t, h)
	req := unfinished("a", "b", "c")
	wantClaim(t, s, req, true, true, true)
	settle := runner.SettleRequest{Token: req.Token, Settlements: []runner.Settlement{
		{ID: "c", Outcome: runner.Delivered}, {ID: "a", Outcome: runner.Failed},
		{ID: "c", Outcome: runner.Delivered}, {ID: "b", Outcome: runner.InDoubt}, {ID: "x", Outcome: runner.Failed},
	}}
	wantSettle(t, s, settle, runner.Settled, runner.Settled, runner.AlreadySettled, runner.Settled, runner.NotClaimed)
	wantSettle(t, s, settle, runner.AlreadySettled, runner.AlreadySettled, runner.AlreadySettled, runner.AlreadySettled, runner.NotClaimed)
	for id, want := range map[string]string{"a": "failed", "b": "in_doubt", "c": "delivered"} {
		got := wantLookup(t, s, id)
		if got.State() != want || got.Token != req.Token {
			t.Errorf("the claim of %q is %s, want %s", id, got.State(), want)
		}
		if d := time.Since(got.FinishedAt); d < -time.Second || d > time.Minute {
			t.Errorf("the claim of %q was finished at %v, but it is %v", id, got.FinishedAt, time.Now())
		}
	}
}

func testSettleNotOwner(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	run := mustBegin(t, held, "").Run
	mine := inRun(run, "mine")
	mine.Expires = longExpiry
	wantClaim(t, held, mine, true)
	wantClaim(t, s, unfinished("other"), true)
	exec(t, p, "insert into processed_events (event_id) values ('program')")

	all := settleAll(runner.Delivered, "other", "program", "mine")
	wantSettle(t, s, runner.SettleRequest{Settlements: all, Token: runner.NewToken()}, runner.NotOwner, runner.NotOwner, runner.NotOwner)
	// Both conditions count where both are given.
	wantSettle(t, held, runner.SettleRequest{Settlements: all, Token: runner.NewToken(), Run: &run}, runner.NotOwner, runner.NotOwner, runner.NotOwner)
	wantSettle(t, held, runner.SettleRequest{Settlements: all, Run: &run}, runner.NotOwner, runner.NotOwner, runner.Settled)
	// Somebody else's success is not one's own.
	wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(runner.Delivered, "mine"), Token: runner.NewToken()}, runner.NotOwner)
	wantRows(t, p, "select event_id, outcome from processed_events order by event_id", "mine|delivered", "other|-", "program|-")
}

func testSettleAgain(t *testing.T, h Harness) {
	outcomes := []runner.Outcome{runner.Delivered, runner.Failed, runner.InDoubt}
	p, s := fresh(t, h)
	for _, before := range outcomes {
		for _, after := range outcomes {
			id := string(before) + " then " + string(after)
			req := unfinished(id)
			wantClaim(t, s, req, true)
			settle := func(o runner.Outcome, want runner.SettleAnswer) {
				t.Helper()
				wantSettle(t, s, runner.SettleRequest{Settlements: settleAll(o, id), Token: req.Token}, want)
			}
			settle(before, runner.Settled)
			// Doubt ends when the owner learns what happened, however late.
			want, state := runner.NotOwner, before
			switch {
			case before == after:
				want = runner.AlreadySettled
			case before == runner.InDoubt:
				want, state = runner.Settled, after
			}
			settle(after, want)
			wantState(t, s, id, string(state))
		}
	}
	wantRows(t, p, "select count(*) from processed_events where finished_at is null", "0")
}

// sendLetter is the dead letter of a send of id.
func sendLetter(id string) *runner.DeadLetter {
	return &runner.DeadLetter{
		Kind: runner.KindSend, Name: "example.net", EventID: runner.EventID(id),
		PayloadHash: runner.HashBytes([]byte("body")), Payload: []byte("body"), Request: []byte(`{"method": "POST"}`),
		LastError: "status 500", Attempts: 3, Certainty: runner.InDoubt,
		RetryAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

func testSettleLetter(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	mine := unfinished("a", "b")
	wantClaim(t, s, mine, true, true)
	wantClaim(t, s, unfinished("theirs"), true)
	settle := runner.SettleRequest{Token: mine.Token}
	for _, id := range []string{"a", "theirs", "nobody's", "b"} {
		settle.Settlements = append(settle.Settlements,
			runner.Settlement{ID: runner.EventID(id), Outcome: runner.InDoubt, DeadLetter: sendLetter(id)})
	}
	wantSettle(t, s, settle, runner.Settled, runner.NotOwner, runner.NotClaimed, runner.Settled)
	wantSettle(t, s, settle, runner.AlreadySettled, runner.NotOwner, runner.NotClaimed, runner.AlreadySettled)
	hash := runner.HashBytes([]byte("body"))
	wantRows(t, p, "select kind, name, event_id, payload_hash, last_error, attempts, certainty, octet_length(payload) from failed_jobs order by id",
		"send|example.net|a|"+hash+"|status 500|3|in_doubt|4", "send|example.net|b|"+hash+"|status 500|3|in_doubt|4")
	wantRows(t, p, "select count(*) from failed_jobs where retry_at >= '2030-01-02T03:04:05.000Z' and retry_at < '2030-01-02T03:04:05.001Z'", "2")

	// One that cannot be saved takes the whole request with it.
	more := unfinished("c", "d")
	wantClaim(t, s, more, true, true)
	broken := sendLetter("d")
	broken.LastError = ""
	_, err := s.Settle(t.Context(), runner.SettleRequest{Token: more.Token, Settlements: []runner.Settlement{
		{ID: "c", Outcome: runner.Failed, DeadLetter: sendLetter("c")}, {ID: "d", Outcome: runner.Failed, DeadLetter: broken},
	}})
	if err == nil {
		t.Fatal("Settle() took a dead letter without an error")
	}
	wantRows(t, p, "select count(*) from failed_jobs", "2")
	wantState(t, s, "c", "unfinished")
	wantState(t, s, "d", "unfinished")
}

func testGiveBack(t *testing.T, h Harness) {
	give := func(t *testing.T, c runner.Claimer, req runner.GiveBackRequest, want ...runner.SettleAnswer) {
		t.Helper()
		got, err := c.GiveBack(t.Context(), req)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("GiveBack(%q) = %v, %v, want %v", req.IDs, got, err, want)
		}
	}
	t.Run("WhenOwned_CanBeWonAgain", func(t *testing.T) {
		_, s := fresh(t, h)
		req := unfinished("a", "b")
		wantClaim(t, s, req, true, true)
		give(t, s, runner.GiveBackRequest{IDs: ids("b", "x", "b"), Token: req.Token}, runner.Settled, runner.NotClaimed, runner.NotClaimed)
		wantClaim(t, s, bare("a", "b"), false, true)
		give(t, s, runner.GiveBackRequest{})
	})
	t.Run("WhenAnotherOwns_Stays", func(t *testing.T) {
		_, s := fresh(t, h)
		held := mustLock(t, s, "nightly")
		run := mustBegin(t, held, "").Run
		wantClaim(t, held, inRun(run, "mine"), true)
		wantClaim(t, s, bare("other"), true)
		give(t, s, runner.GiveBackRequest{IDs: ids("mine", "other"), Token: runner.NewToken()}, runner.NotOwner, runner.NotOwner)
		give(t, held, runner.GiveBackRequest{IDs: ids("mine", "other"), Run: &run}, runner.Settled, runner.NotOwner)
		wantClaim(t, s, bare("mine", "other"), true, false)
	})
	t.Run("WhenDelivered_StaysForEver", func(t *testing.T) {
		p, s := fresh(t, h)
		all := []string{"bare", "unfinished", "expired", "delivered", "failed", "in_doubt"}
		for _, state := range all {
			claimIn(t, p, s, state, state)
		}
		give(t, s, runner.GiveBackRequest{IDs: ids(all...)}, runner.Settled, runner.Settled, runner.Settled,
			runner.AlreadySettled, runner.Settled, runner.Settled)
		wantRows(t, p, "select event_id from processed_events", "delivered")
	})
}
