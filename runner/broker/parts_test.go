package broker

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/oncectl/oncectl/runner"
)

// The sizes are estimates, and safe only if they are never too small.
func TestSizes_WhenEstimated_AreNeverLessThanOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := runner.EventID(rapid.String().Draw(t, "id"))
		s := runner.Settlement{ID: id, Outcome: runner.InDoubt, DeadLetter: &runner.DeadLetter{
			Kind: runner.KindOutbox, Name: rapid.String().Draw(t, "name"), EventID: id, PayloadHash: runner.HashBytes(nil),
			Payload: make([]byte, rapid.IntRange(0, 5000).Draw(t, "payload")), Request: make([]byte, rapid.IntRange(0, 5000).Draw(t, "request")),
			LastError: rapid.String().Draw(t, "last error"), Attempts: -1 << 63, Certainty: runner.InDoubt, RetryAt: epoch,
		}}
		b, err := encode(encodeSettleRequest(runner.SettleRequest{Settlements: []runner.Settlement{s}, Token: aToken}))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > settlementSize(s)+100 { // the request's own fields
			t.Errorf("%d bytes, %d were estimated", len(b), settlementSize(s))
		}
	})
}

func TestSettleParts_WhenTheyDoNotFitOneRequest_AreCutAndNothingIsLost(t *testing.T) {
	letter := func(n int) runner.Settlement {
		return runner.Settlement{ID: "a", DeadLetter: &runner.DeadLetter{Payload: make([]byte, n)}}
	}
	const mib = 1 << 20
	for _, sizes := range [][]int{{}, {10 * mib}, {10 * mib, 10 * mib}, {10 * mib, 10 * mib, 10 * mib}, {1, 10 * mib, 2, 10 * mib, 10 * mib, 3, 10 * mib}, {40 * mib, 1}} {
		var all, got []runner.Settlement
		for _, n := range sizes {
			all = append(all, letter(n))
		}
		parts := 0
		for part := range settleParts(all) {
			parts++
			got = append(got, part...)
			if len(part) > 1 && payloads(part) > partSize {
				t.Errorf("%v: a part of %d bytes", sizes, payloads(part))
			}
		}
		if len(got) != len(all) || parts == 0 || parts > 1 && payloads(all) <= partSize {
			t.Errorf("%v: %d settlements in %d parts", sizes, len(got), parts)
		}
		for i := range got {
			if len(got[i].DeadLetter.Payload) != sizes[i] {
				t.Errorf("%v: another order", sizes)
			}
		}
	}
}
