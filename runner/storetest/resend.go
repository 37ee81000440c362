package storetest

import (
	"slices"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// testResend: an event that failed before is sent again, by one sender, and its
// dead letters follow.
func testResend(t *testing.T, h Harness) {
	t.Run("WhenItFailedBefore_OneOfManyTakesIt", func(t *testing.T) {
		p, s := fresh(t, h)
		all := names("e", 8)
		first := sending(all...)
		claimAll(t, s, first)
		wantSettle(t, s, settling(first.Token, settleAll(runner.Failed, all...)...), slices.Repeat(answers(runner.Settled), len(all))...)
		w := winners{of: map[runner.EventID]int{}}
		contend(t, p, 16, func(_ int, s Store) {
			for _, id := range all {
				req := sending(id)
				req.Take = runner.TakeFailed
				won, err := s.Claim(t.Context(), req)
				if err != nil {
					t.Errorf("Claim() = %v", err)
					return
				}
				w.add(req.IDs, won)
			}
		})
		w.wantOneEach(t, len(all))
	})
	t.Run("WhenSettledAgain_OlderLettersAreResolved", func(t *testing.T) { testOlderLetters(t, h) })
	t.Run("WhenNotTheOwners_LettersStayOpen", func(t *testing.T) {
		p, s := fresh(t, h)
		save(t, s, sendLetter("a"))
		other := runner.Settlement{ID: "a", Outcome: runner.Failed, DeadLetter: sendLetter("a")}
		wantSettle(t, s, settling(runner.NewToken(), other), runner.NotOwner)
		wantSettle(t, s, settling(runner.NewToken(), settleAll(runner.Delivered, "a", "none")...), runner.NotOwner, runner.NotClaimed)
		wantRows(t, p, "select event_id, resolution from failed_jobs", "a|-")
	})
	t.Run("WhenOneRequestSettlesTwice_OneLetterIsOpen", func(t *testing.T) {
		p, s := fresh(t, h)
		req := sending("a", "b")
		claimAll(t, s, req)
		wantSettle(t, s, settling(req.Token,
			runner.Settlement{ID: "a", Outcome: runner.InDoubt, DeadLetter: sendLetter("a")},
			runner.Settlement{ID: "b", Outcome: runner.InDoubt, DeadLetter: sendLetter("b")},
			runner.Settlement{ID: "a", Outcome: runner.Delivered}),
			runner.Settled, runner.Settled, runner.Settled)
		wantRows(t, p, "select event_id from failed_jobs where resolved_at is null", "b")
		wantState(t, s, "a", "delivered")
	})
	t.Run("WhenClaimedInTheRun_IsAdoptedByItsSender", func(t *testing.T) { testAdopt(t, h) })
}

// testOlderLetters: those of the event and of its kinds only, and none that a
// person has resolved.
func testOlderLetters(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	for _, id := range []string{"a", "b", "other"} {
		letter := sendLetter(id)
		letter.Certainty = runner.Failed
		save(t, s, letter)
	}
	for _, kind := range []string{"claim", "run", "outbox"} {
		exec(t, p, "insert into failed_jobs (kind, name, event_id, last_error, certainty) values ("+quote(kind)+", 'n', 'a', 'x', 'failed'), ("+quote(kind)+", 'n', 'b', 'x', 'failed')")
	}
	exec(t, p, "insert into failed_jobs (kind, name, event_id, last_error, certainty, resolved_at, resolution) values ('send', 'n', 'a', 'x', 'failed', '2001-01-01T00:00:00.000Z', 'by hand')")
	again := sending("a", "b")
	again.Take = runner.TakeFailed
	claimAll(t, s, again)
	wantRows(t, p, "select count(*) from failed_jobs where resolved_at is null", "9")
	wantSettle(t, s, settling(again.Token,
		runner.Settlement{ID: "a", Outcome: runner.Delivered},
		runner.Settlement{ID: "b", Outcome: runner.InDoubt, DeadLetter: sendLetter("b")}), runner.Settled, runner.Settled)
	wantRows(t, p, "select event_id, kind, certainty, resolution from failed_jobs order by event_id, id",
		"a|send|failed|delivered", "a|claim|failed|delivered", "a|run|failed|-", "a|outbox|failed|-", "a|send|failed|by hand",
		"b|send|failed|tried again", "b|claim|failed|tried again", "b|run|failed|-", "b|outbox|failed|-", "b|send|in_doubt|-",
		"other|send|failed|-")
	wantRows(t, p, "select count(*) from failed_jobs where resolution in ('delivered', 'tried again') and resolved_at >= failed_at", "4")
}

// testAdopt: `claim ID` and then `send --id ID` in one run is one claim that
// becomes a send; outside the run, or in another, it is refused.
func testAdopt(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	run := mustBegin(t, held, "").Run
	otherHeld := mustLock(t, s, "hourly")
	otherRun := mustBegin(t, otherHeld, "").Run
	claimAll(t, held, inRun(run, "a"))
	claimAll(t, s, bare("nobody's"))
	send := func(id string, in *runner.Run) runner.ClaimRequest {
		req := sending(id)
		req.Take, req.Run = runner.TakeFailed|runner.TakeBareOfRun, in
		return req
	}
	wantClaim(t, s, send("a", nil), false)
	wantClaim(t, otherHeld, send("a", &otherRun), false)
	wantClaim(t, held, send("nobody's", &run), false)
	adopted := send("a", &run)
	wantClaim(t, held, adopted, true)
	got := wantLookup(t, s, "a")
	if got.State() != "unfinished" || got.Token != adopted.Token || got.Target != "example.net" || got.PayloadHash != adopted.PayloadHashes[0] || got.RunID != run.ID {
		t.Errorf("the adopted claim reads as %+v", got)
	}
	wantClaim(t, held, send("a", &run), false) // it is being sent
	expire(t, p, "a")
	wantSweep(t, s, 1)
	wantState(t, s, "nobody's", "claimed")
}
