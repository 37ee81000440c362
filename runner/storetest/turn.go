package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func testTurn(t *testing.T, h Harness) {
	t.Run("SettlesAndClaims", func(t *testing.T) { testTurnBoth(t, h) })
	t.Run("SettlesBeforeItClaims", func(t *testing.T) {
		_, s := fresh(t, h)
		first := unfinished("a")
		wantClaim(t, s, first, true)
		next := taking(runner.TakeFailed, "a")
		wantTurn(t, s, settling(first.Token, settleAll(runner.Failed, "a")...), next, answers(runner.Settled), true)
		if got := wantLookup(t, s, "a"); got.Token != next.Token || got.State() != "unfinished" {
			t.Errorf("the claim that was settled and taken in one turn reads as %+v", got)
		}
	})
	t.Run("WhenHalfIsEmpty_DoesTheOther", func(t *testing.T) {
		_, s := fresh(t, h)
		none := runner.ClaimRequest{Token: runner.NewToken()}
		wantTurn(t, s, runner.SettleRequest{}, none, nil)
		req := unfinished("a", "b", "a")
		wantTurn(t, s, runner.SettleRequest{}, req, nil, true, true, false)
		wantTurn(t, s, settling(req.Token, settleAll(runner.Delivered, "a")...), none, answers(runner.Settled))
		wantState(t, s, "a", "delivered")
		wantState(t, s, "b", "unfinished")
	})
	t.Run("WhenTheAnswerWasLost_IsRepeated", func(t *testing.T) {
		p, s := fresh(t, h)
		mine := unfinished("a")
		wantClaim(t, s, mine, true)
		lost := runner.Settlement{ID: "a", Outcome: runner.InDoubt, DeadLetter: sendLetter("a")}
		next := taking(runner.TakeFailed, "b", "a")
		next.Token = mine.Token // a batch has one token for all
		wantTurn(t, s, settling(mine.Token, lost), next, answers(runner.Settled), true, false)
		wantTurn(t, p.Open(t), settling(mine.Token, lost), next, answers(runner.AlreadySettled), true, false)
		wantRows(t, p, "select count(*) from failed_jobs", "1")
	})
	t.Run("WhenRefused_WritesNothing", func(t *testing.T) { testTurnRefused(t, h) })
	t.Run("WhenTheRunIsFenced_WritesNothing", func(t *testing.T) { testTurnFenced(t, h) })
	t.Run("WhenTwoCross_BothEnd", func(t *testing.T) { testTurnsCross(t, h) })
	t.Run("WhenManyTurn_NeverHasMoreUnfinishedThanInFlight", func(t *testing.T) { testTurnBound(t, h) })
}

// settling is a request by the owner of token.
func settling(token runner.Token, s ...runner.Settlement) runner.SettleRequest {
	return runner.SettleRequest{Token: token, Settlements: s}
}

func answers(a ...runner.SettleAnswer) []runner.SettleAnswer { return a }

func wantTurn(t *testing.T, s runner.Turner, settle runner.SettleRequest, claim runner.ClaimRequest, settled []runner.SettleAnswer, won ...bool) {
	t.Helper()
	gotSettled, gotWon, err := s.Turn(t.Context(), settle, claim)
	if err != nil || fmt.Sprint(gotSettled, gotWon) != fmt.Sprint(settled, won) {
		t.Fatalf("Turn(%v, %q) = %v, %v, %v, want %v, %v", settle.Settlements, claim.IDs, gotSettled, gotWon, err, settled, won)
	}
}

func testTurnBoth(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	mine := unfinished("a", "b")
	wantClaim(t, s, mine, true, true)
	wantClaim(t, s, unfinished("theirs"), true)
	settle := settling(mine.Token,
		runner.Settlement{ID: "b", Outcome: runner.Failed, DeadLetter: sendLetter("b")},
		runner.Settlement{ID: "theirs", Outcome: runner.Delivered},
		runner.Settlement{ID: "a", Outcome: runner.Delivered},
		runner.Settlement{ID: "nobody's", Outcome: runner.Delivered})
	next := unfinished("d", "theirs", "c", "d", "a")
	next.Targets = slices.Repeat([]string{"example.net"}, 5)
	next.PayloadHashes = slices.Repeat([]string{runner.HashBytes([]byte("body"))}, 5)
	wantTurn(t, s, settle, next, answers(runner.Settled, runner.NotOwner, runner.Settled, runner.NotClaimed), true, false, true, false, false)
	for id, want := range map[string]string{"a": "delivered", "b": "failed", "theirs": "unfinished", "c": "unfinished", "d": "unfinished"} {
		wantState(t, s, id, want)
	}
	if got := wantLookup(t, s, "c"); got.Token != next.Token || got.Target != "example.net" || got.PayloadHash != next.PayloadHashes[2] {
		t.Errorf("the claim made in a turn reads as %+v", got)
	}
	wantNoClaim(t, s, "nobody's")
	wantRows(t, p, "select event_id from failed_jobs", "b")
}

// testTurnRefused also has more ids than a store may handle in one way.
func testTurnRefused(t *testing.T, h Harness) {
	for _, n := range []int{2, 1000} {
		p, s := fresh(t, h)
		mine := unfinished("a", "b")
		wantClaim(t, s, mine, true, true)
		broken := sendLetter("b")
		broken.LastError = ""
		good, bad := bare(names("next-", n)...), bare(names("next-", n)...)
		bad.PayloadHashes = []string{runner.HashBytes(nil)}
		for what, req := range map[string]struct {
			settle runner.SettleRequest
			claim  runner.ClaimRequest
		}{
			"one hash for many ids": {settling(mine.Token, settleAll(runner.Delivered, "a")...), bad},
			"a letter without an error": {settling(mine.Token, runner.Settlement{ID: "a", Outcome: runner.Delivered},
				runner.Settlement{ID: "b", Outcome: runner.Failed, DeadLetter: broken}), good},
		} {
			_, _, err := s.Turn(t.Context(), req.settle, req.claim)
			wantErr(t, "Turn with "+what, err, runner.ErrInvalid)
			wantState(t, s, "a", "unfinished")
			wantState(t, s, "b", "unfinished")
			wantRows(t, p, "select count(*) from processed_events", "2")
		}
	}
}

func testTurnFenced(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	held := mustLock(t, s, "nightly")
	old := mustBegin(t, held, "").Run
	mine := inRun(old, "a", "b")
	mine.Expires = longExpiry
	wantClaim(t, held, mine, true, true)
	turn := func(by any, settled string, next string) error {
		settle := settling(mine.Token, settleAll(runner.Delivered, settled)...)
		settle.Run = &old
		_, _, err := by.(runner.Turner).Turn(t.Context(), settle, inRun(old, next))
		return err
	}
	// The lock's own way does the same as the store's.
	if err := turn(held, "a", "c"); err != nil {
		t.Fatalf("Turn by the lock's holder = %v", err)
	}
	wantState(t, s, "a", "delivered")
	wantState(t, s, "c", "claimed")
	mustRelease(t, held)
	other := p.Open(t)
	mustBegin(t, mustLock(t, other, "nightly"), "")
	wantErr(t, "Turn by an old run", turn(s, "b", "d"), runner.ErrFenced)
	wantErr(t, "Turn by an old run through another handle", turn(other, "b", "d"), runner.ErrFenced)
	wantState(t, s, "b", "unfinished")
	wantNoClaim(t, s, "d")
	// Also where only what is claimed is for the old run.
	_, _, err := s.Turn(t.Context(), settling(mine.Token, settleAll(runner.Delivered, "nobody's")...), inRun(old, "d"))
	wantErr(t, "Turn that claims for an old run", err, runner.ErrFenced)
	wantNoClaim(t, s, "d")
}

// testTurnsCross: each settles what the other wants to claim, so that each may
// hold a row for which the other waits.
func testTurnsCross(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	const take = runner.TakeFailed | runner.TakeExpired
	for round := range 3 {
		own := [2]string{"x" + itoa(round), "y" + itoa(round)}
		var tokens [2]runner.Token
		for i, id := range own {
			req := unfinished(id)
			wantClaim(t, s, req, true)
			tokens[i] = req.Token
		}
		contend(t, p, 2, func(i int, s Store) {
			settle := settling(tokens[i], settleAll(runner.Delivered, own[i])...)
			settled, won, err := s.Turn(t.Context(), settle, taking(take, own[1-i], "own "+own[i]))
			if err != nil || settled[0] != runner.Settled || won[0] || !won[1] {
				t.Errorf("Turn() that crosses another = %v, %v, %v", settled, won, err)
			}
		})
	}
}

// testTurnBound: some senders share the same events, each with one in flight. A
// reader never sees more unfinished claims than there are senders.
func testTurnBound(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	wantClaim(t, s, bare("makes the tables"), true)
	const senders, n = 8, 16
	w := winners{of: map[runner.EventID]int{}}
	var done atomic.Bool
	var watcher sync.WaitGroup
	db := p.DB(t)
	looked := make(chan struct{})
	watcher.Go(func() {
		for first := true; !done.Load(); first = false {
			var most string
			err := db.QueryRowContext(t.Context(), "select count(*) from processed_events where expires_at is not null and outcome is null").Scan(&most)
			if n, _ := strconv.Atoi(most); err != nil || n > senders {
				t.Errorf("%s claims are unfinished, %v, want at most %d", most, err, senders)
				done.Store(true)
			}
			if first {
				close(looked)
			}
		}
	})
	<-looked
	contend(t, p, senders, func(_ int, s Store) {
		all := ids(names("e", n)...)
		rand.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
		settle := runner.SettleRequest{Token: runner.NewToken()}
		for _, id := range all {
			claim := runner.ClaimRequest{IDs: []runner.EventID{id}, Token: settle.Token, Expires: longExpiry, Take: runner.TakeFailed}
			_, won, err := s.Turn(t.Context(), settle, claim)
			if err != nil {
				t.Errorf("Turn() = %v", err)
				return
			}
			w.add(claim.IDs, won)
			settle.Settlements = nil
			if won[0] {
				settle.Settlements = settleAll(runner.Delivered, string(id))
			}
		}
		if _, err := s.Settle(t.Context(), settle); err != nil {
			t.Errorf("Settle() = %v", err)
		}
	})
	done.Store(true)
	watcher.Wait()
	w.wantOneEach(t, n)
	wantRows(t, p, "select count(*) from processed_events where outcome = 'delivered'", itoa(n))
}
