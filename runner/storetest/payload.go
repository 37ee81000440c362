package storetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

func testPayload(t *testing.T, h Harness) {
	t.Run("WhenKept_IsTheSameBytes", func(t *testing.T) { testPayloadBytes(t, h) })
	t.Run("WhenTextHasWhatNoTextMayHave_IsKeptReadable", func(t *testing.T) { testOddText(t, h) })
	t.Run("WhenARunFails_ItsLettersTextIsKeptReadable", func(t *testing.T) {
		_, s := fresh(t, h)
		held := mustLock(t, s, "nightly")
		run := mustBegin(t, held, "").Run
		letter := &runner.DeadLetter{
			Kind: runner.KindRun, Name: "night\xffly", LastError: "stderr ends:\n\x00\xc3", Attempts: 1, Certainty: runner.Failed,
		}
		if err := held.Finish(t.Context(), run, runner.RunEnd{Outcome: runner.RunFailed, ExitCode: 1, DeadLetter: letter}); err != nil {
			t.Fatalf("Finish() = %v", err)
		}
		got := letters(t, s, runner.DeadLetterFilter{Kind: runner.KindRun})
		if len(got) != 1 || got[0].Name != "night\uFFFDly" || got[0].LastError != "stderr ends:\n\uFFFD\uFFFD" {
			t.Errorf("the run's dead letter reads as %+v", got)
		}
	})
	t.Run("WhenTheIdHasAnotherPayload_NobodyWinsWithIt", func(t *testing.T) { testOtherPayload(t, h) })
	t.Run("WhenTwoPayloadsComeAtOnce_OneIsRefused", func(t *testing.T) { testTwoPayloads(t, h) })
}

// testPayloadBytes: no payload and one of no bytes are two things, since only
// the second can be sent again.
func testPayloadBytes(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	most := make([]byte, runner.MaxBodyBytes)
	rand.NewChaCha8([32]byte{7}).Read(most)
	for name, payload := range map[string][]byte{
		"none": nil, "empty": {}, "NUL": {0}, "every byte": every, "like a literal": []byte(`\x00'\\"`), "UTF-16": []byte("\xff\xfea\x00"), "the most": most,
	} {
		d := sendLetter(name)
		d.Payload, d.PayloadHash = payload, runner.HashBytes(payload)
		id := save(t, s, d).ID
		got, err := p.Open(t).DeadLetter(t.Context(), id)
		if err != nil || !bytes.Equal(got.Payload, payload) || (got.Payload == nil) != (payload == nil) || runner.HashBytes(got.Payload) != got.PayloadHash {
			t.Errorf("the payload %q of %d bytes came back with %d (nil: %v), %v", name, len(payload), len(got.Payload), got.Payload == nil, err)
		}
	}
	// Other programs find the bytes themselves, not a form of them.
	wantRows(t, p, "select octet_length(payload) from failed_jobs where event_id = 'every byte'", "256")
	wantRows(t, p, "select event_id from failed_jobs where payload is null", "none")
}

// testOddText: what a receiver or a job said may be anything. The outcome is
// recorded all the same, and what is shown is text.
func testOddText(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	for i, c := range []struct{ in, want string }{
		{"\x00", "\uFFFD"},
		{"status 500: a\x00b\x00", "status 500: a\uFFFDb\uFFFD"},
		{"latin \xe9t\xe9", "latin \uFFFDt\uFFFD"},
		{"cut \xf0\x9f\x98", "cut \uFFFD"},
		{"surrogate \xed\xa0\x80", "surrogate \uFFFD"},
		{"\u2028 \ufeff \U0010ffff \x1b[31m 'é' \\ %s", "\u2028 \ufeff \U0010ffff \x1b[31m 'é' \\ %s"},
	} {
		d := sendLetter("e" + itoa(i))
		d.LastError, d.Name = c.in, c.in
		id := save(t, s, d).ID
		wantState(t, s, "e"+itoa(i), "in_doubt")
		wantLetters(t, s, runner.DeadLetterFilter{Name: c.in}, "e"+itoa(i))
		wantResolve(t, s, id, c.in, true)
		got, err := s.DeadLetter(t.Context(), id)
		if err != nil || got.LastError != c.want || got.Name != c.want || got.Resolution != c.want {
			t.Errorf("%q came back as the error %q, the name %q, the note %q, %v; want %q", c.in, got.LastError, got.Name, got.Resolution, err, c.want)
		}
	}
	wantRows(t, p, "select count(*) from failed_jobs where last_error = '' or resolution = ''", "0")
}

func testOtherPayload(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	const all = runner.TakeExpired | runner.TakeFailed | runner.TakeInDoubt | runner.TakeBareOfRun
	for _, state := range []string{"live", "expired", "delivered", "failed", "in_doubt"} {
		first := sending(state)
		claimAll(t, s, first)
		switch state {
		case "live":
		case "expired":
			expire(t, p, state)
		default:
			wantSettle(t, s, settling(first.Token, settleAll(runner.Outcome(state), state)...), runner.Settled)
		}
		other := sending(state)
		other.Take, other.PayloadHashes = all, []string{runner.HashBytes([]byte("another body"))}
		wantClaim(t, s, other, false)
		// Not even the claimer itself, which asks again after a lost answer.
		other.Token = first.Token
		wantClaim(t, s, other, false)
		got := wantLookup(t, s, state)
		if got.PayloadHash != first.PayloadHashes[0] || got.Token != first.Token {
			t.Errorf("the %s claim reads as %+v after another payload was refused", state, got)
		}
	}
}

// testTwoPayloads: whoever loses finds the winner's hash, whatever was there
// when both began: nothing, or a send that failed before hashes were kept.
func testTwoPayloads(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	const rounds, claimers = 6, 8
	hash := [2]string{runner.HashBytes([]byte("0")), runner.HashBytes([]byte("1"))}
	for round := range rounds {
		id := "e" + itoa(round)
		if round%2 == 1 {
			claimIn(t, p, s, id, "failed")
		}
		w := winners{of: map[runner.EventID]int{}}
		won := make([]bool, claimers)
		contend(t, p, claimers, func(i int, s Store) {
			req := taking(runner.TakeFailed|runner.TakeBareOfRun, id)
			req.PayloadHashes = []string{hash[i%2]}
			got, err := s.Claim(t.Context(), req)
			if err == nil && !got[0] {
				// In a statement of its own: the losing one did not see the row.
				var found []runner.Claim
				if found, err = s.Lookup(t.Context(), req.IDs); err == nil && len(found) != 1 {
					err = errors.New("the loser finds no claim")
				}
			}
			if err != nil {
				t.Errorf("Claim(%q) = %v", id, err)
				return
			}
			won[i] = got[0]
			w.add(req.IDs, got)
		})
		w.wantOneEach(t, 1)
		for i, won := range won {
			if got := wantLookup(t, s, id).PayloadHash; won && got != hash[i%2] {
				t.Errorf("claimer %d won with the hash %.8s, but %.8s is kept", i, hash[i%2], got)
			}
		}
	}
}
