package storetest

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testSweep(t *testing.T, h Harness) {
	t.Run("WhenTheStoreIsNew_FindsNothing", func(t *testing.T) {
		_, s := fresh(t, h)
		wantSweep(t, s, 0)
	})
	t.Run("WhenASendHasExpired_IsInDoubtOnce", func(t *testing.T) { testSweepOnce(t, h) })
	t.Run("WhenItIsNoExpiredSend_IsLeftAlone", func(t *testing.T) { testSweepLeaves(t, h) })
	t.Run("WhenManySweep_EachSendIsFoundOnce", func(t *testing.T) { testSweepers(t, h) })
	t.Run("WhenTheOutcomeComesLate_IsResolved", func(t *testing.T) { testLateOutcome(t, h) })
	t.Run("WhenOutcomesComeMeanwhile_NoDoubtIsLeft", func(t *testing.T) { testSweepAgainstSettle(t, h) })
	t.Run("WhenTheEventHadALetter_TakesItsPlace", func(t *testing.T) { testSweepReplaces(t, h) })
}

func wantSweep(t *testing.T, s runner.Sweeper, want int) {
	t.Helper()
	if n, err := s.Sweep(t.Context()); err != nil || n != want {
		t.Fatalf("Sweep() = %d, %v, want %d", n, err, want)
	}
}

// sending is the claim of a sender: unfinished, with a target and a payload.
func sending(names ...string) runner.ClaimRequest {
	req := unfinished(names...)
	req.Targets = slices.Repeat([]string{"example.net"}, len(names))
	req.PayloadHashes = slices.Repeat([]string{runner.HashBytes([]byte("body"))}, len(names))
	return req
}

// claimAll wins all of req.
func claimAll(t *testing.T, s runner.Claimer, req runner.ClaimRequest) {
	t.Helper()
	wantClaim(t, s, req, slices.Repeat([]bool{true}, len(req.IDs))...)
}

func testSweepOnce(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	req := sending("a", "b")
	req.Owner = "host-ä/17"
	claimAll(t, s, req)
	nobodys := sending("c")
	nobodys.Owner = ""
	claimAll(t, s, nobodys)
	expire(t, p, "a", "b", "c")
	wantSweep(t, p.Open(t), 3)
	wantSweep(t, s, 0)
	got := letters(t, s, runner.DeadLetterFilter{})
	if len(got) != 3 {
		t.Fatalf("the sweep of three sends left the dead letters %+v", got)
	}
	for i, id := range []runner.EventID{"a", "b", "c"} {
		owner := "host-ä/17"
		if id == "c" {
			owner = "unknown"
		}
		d := got[i]
		if d.Kind != runner.KindSend || d.Name != "example.net" || d.EventID != id || d.PayloadHash != req.PayloadHashes[0] ||
			d.Certainty != runner.InDoubt || d.Attempts != 1 || !strings.Contains(d.LastError, "("+owner+")") || !d.ResolvedAt.IsZero() {
			t.Errorf("the dead letter of the send %q reads as %+v", id, d)
		}
		c := wantLookup(t, s, string(id))
		if since := time.Since(c.FinishedAt); c.Outcome != runner.InDoubt || since < -time.Second || since > time.Minute {
			t.Errorf("the swept claim reads as %+v", c)
		}
	}
	// It is doubtful now, not merely expired: only who may resolve doubt wins it.
	wantClaim(t, s, taking(runner.TakeExpired|runner.TakeFailed|runner.TakeBareOfRun, "a"), false)
	wantClaim(t, s, taking(runner.TakeInDoubt, "a"), true)
}

func testSweepLeaves(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	claimAll(t, s, sending("live"))
	for _, outcome := range []runner.Outcome{runner.Delivered, runner.Failed, runner.InDoubt} {
		req := sending(string(outcome))
		claimAll(t, s, req)
		wantSettle(t, s, settling(req.Token, settleAll(outcome, string(outcome))...), runner.Settled)
	}
	claimAll(t, s, unfinished("a command's"))
	settledBefore := []string{"delivered", "failed", "in_doubt"}
	expire(t, p, append(settledBefore, "a command's")...)
	claimAll(t, s, bare("bare"))
	exec(t, p, "insert into processed_events (event_id, claimed_at) values ('program', '2001-01-01T00:00:00.000Z') on conflict do nothing")
	const all = "select event_id, claimed_at, token, outcome, expires_at, finished_at from processed_events order by event_id"
	before := rows(t, p, all)
	wantSweep(t, s, 0)
	wantRows(t, p, all, before...)
	wantRows(t, p, "select count(*) from failed_jobs", "0")
	// A command's claim is in doubt by its time alone, and won by the next.
	wantState(t, s, "a command's", "in_doubt")
	wantClaim(t, s, taking(runner.TakeExpired, "a command's"), true)
}

func testSweepers(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	const n, sweepers = 300, 8
	all := names("e", n)
	claimAll(t, s, sending(all...))
	exec(t, p, "update processed_events set expires_at = '2001-01-01T00:00:00.000Z'")
	var found atomic.Int64
	contend(t, p, sweepers, func(_ int, s Store) {
		for range 3 {
			n, err := s.Sweep(t.Context())
			if err != nil {
				t.Errorf("Sweep() = %v", err)
			}
			found.Add(int64(n))
		}
	})
	if found.Load() != n {
		t.Errorf("the sweepers found %d sends, want %d", found.Load(), n)
	}
	wantRows(t, p, "select count(*), count(distinct event_id) from failed_jobs", itoa(n)+"|"+itoa(n))
	wantRows(t, p, "select count(*) from processed_events where outcome = 'in_doubt'", itoa(n))
}

func testLateOutcome(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	req := sending("arrived", "failed", "unknown")
	claimAll(t, s, req)
	expire(t, p, "arrived", "failed", "unknown")
	wantSweep(t, s, 3)
	wantSettle(t, s, settling(runner.NewToken(), settleAll(runner.Delivered, "arrived")...), runner.NotOwner)
	wantRows(t, p, "select count(*) from failed_jobs where resolved_at is null", "3")

	late := sendLetter("failed")
	late.Certainty = runner.Failed
	wantSettle(t, s, settling(req.Token,
		runner.Settlement{ID: "arrived", Outcome: runner.Delivered},
		runner.Settlement{ID: "failed", Outcome: runner.Failed, DeadLetter: late},
		runner.Settlement{ID: "unknown", Outcome: runner.InDoubt, DeadLetter: sendLetter("unknown")}),
		runner.Settled, runner.Settled, runner.AlreadySettled)
	wantRows(t, p, "select event_id, certainty, resolution from failed_jobs order by event_id, id",
		"arrived|in_doubt|delivered", "failed|in_doubt|tried again", "failed|failed|-", "unknown|in_doubt|-")
	wantState(t, s, "arrived", "delivered")
	wantState(t, s, "failed", "failed")
}

// testSweepAgainstSettle: whether a sweep or its sender comes first, in the end
// the outcome stands and nothing is left for a person to look at.
func testSweepAgainstSettle(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	const n = 120
	all := names("e", n)
	req := sending(all...)
	claimAll(t, s, req)
	exec(t, p, "update processed_events set expires_at = '2001-01-01T00:00:00.000Z'")
	contend(t, p, 8, func(i int, s Store) {
		if i%2 == 0 {
			for range 10 {
				if _, err := s.Sweep(t.Context()); err != nil {
					t.Errorf("Sweep() = %v", err)
				}
			}
			return
		}
		for part := range slices.Chunk(all[i/2*n/4:(i/2+1)*n/4], 3) {
			settled, err := s.Settle(t.Context(), settling(req.Token, settleAll(runner.Delivered, part...)...))
			if err != nil || slices.ContainsFunc(settled, func(a runner.SettleAnswer) bool { return a != runner.Settled }) {
				t.Errorf("Settle() beside a sweep = %v, %v", settled, err)
			}
		}
	})
	wantRows(t, p, "select count(*) from processed_events where outcome = 'delivered'", itoa(n))
	wantRows(t, p, "select count(*) from failed_jobs where resolved_at is null", "0")
}

// testSweepReplaces: a send that failed, was sent again and then lost its
// sender has one open dead letter. What the sweep cannot know, the payload and
// how to send it, is that of the letter before.
func testSweepReplaces(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	for _, id := range []string{"same", "other payload"} {
		req := sending(id)
		claimAll(t, s, req)
		letter := sendLetter(id)
		letter.Certainty = runner.Failed
		wantSettle(t, s, settling(req.Token, runner.Settlement{ID: runner.EventID(id), Outcome: runner.Failed, DeadLetter: letter}), runner.Settled)
	}
	exec(t, p, "update failed_jobs set payload_hash = 'another' where event_id = 'other payload'")
	again := sending("same", "other payload")
	again.Take = runner.TakeFailed
	claimAll(t, s, again)
	expire(t, p, "same", "other payload")
	wantSweep(t, s, 2)
	got := letters(t, s, runner.DeadLetterFilter{})
	if len(got) != 2 {
		t.Fatalf("after the sweep the open dead letters are %+v, want one of each event", got)
	}
	for _, d := range got {
		full, err := s.DeadLetter(t.Context(), d.ID)
		kept := d.EventID == "same"
		if err != nil || d.Certainty != runner.InDoubt || (string(full.Payload) == "body") != kept || (full.Request != nil) != kept {
			t.Errorf("the open dead letter of %q is %+v, %v", d.EventID, full, err)
		}
	}
	wantRows(t, p, "select event_id, certainty, resolution from failed_jobs where resolved_at is not null order by id",
		"same|failed|tried again", "other payload|failed|tried again")
}
