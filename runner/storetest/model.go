package storetest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/oncectl/oncectl/runner"
)

// row is what the model remembers of a claim.
type row struct {
	token   runner.Token
	hash    string
	bare    bool
	expired bool
	outcome runner.Outcome
}

// model is the claims of a store in the plainest form: what runner.Claimer's
// comments say, outside a run.
type model map[runner.EventID]*row

func (m model) claim(req runner.ClaimRequest) []bool {
	won := make([]bool, len(req.IDs))
	seen := map[runner.EventID]bool{}
	for i, id := range req.IDs {
		if seen[id] {
			continue
		}
		seen[id] = true
		old, hash := m[id], req.PayloadHashes[i]
		if old != nil && !old.takenBy(req, hash) {
			continue
		}
		if old != nil && hash == "" {
			hash = old.hash
		}
		m[id] = &row{token: req.Token, hash: hash, bare: req.Expires == 0}
		won[i] = true
	}
	return won
}

func (r *row) takenBy(req runner.ClaimRequest, hash string) bool {
	if r.hash != "" && hash != "" && r.hash != hash {
		return false
	}
	switch {
	case r.outcome == runner.Failed:
		return req.Take&runner.TakeFailed != 0
	case r.outcome == runner.InDoubt:
		return req.Take&runner.TakeInDoubt != 0
	case r.outcome != "":
		return false
	case r.token == req.Token:
		return true
	}
	return !r.bare && r.expired && req.Take&runner.TakeExpired != 0
}

func (m model) settle(req runner.SettleRequest) []runner.SettleAnswer {
	out := make([]runner.SettleAnswer, len(req.Settlements))
	for i, s := range req.Settlements {
		r := m[s.ID]
		switch {
		case r == nil:
			out[i] = runner.NotClaimed
		case req.Token != "" && r.token != req.Token:
			out[i] = runner.NotOwner
		case r.outcome == s.Outcome:
			out[i] = runner.AlreadySettled
		case r.outcome != "" && r.outcome != runner.InDoubt:
			out[i] = runner.NotOwner
		default:
			out[i], r.outcome = runner.Settled, s.Outcome
		}
	}
	return out
}

func (m model) giveBack(req runner.GiveBackRequest) []runner.SettleAnswer {
	out := make([]runner.SettleAnswer, len(req.IDs))
	for i, id := range req.IDs {
		r := m[id]
		switch {
		case r == nil:
			out[i] = runner.NotClaimed
		case req.Token != "" && r.token != req.Token:
			out[i] = runner.NotOwner
		case r.outcome == runner.Delivered:
			out[i] = runner.AlreadySettled
		default:
			out[i] = runner.Settled
			delete(m, id)
		}
	}
	return out
}

func (r *row) state() string {
	switch {
	case r.outcome != "":
		return string(r.outcome)
	case r.bare:
		return "claimed"
	case r.expired:
		return "in_doubt"
	}
	return "unfinished"
}

// testModel compares the store with the model over random histories of few ids
// and few claimers.
func testModel(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	wantClaim(t, s, bare("makes the tables"), true)
	tokens := []runner.Token{runner.NewToken(), runner.NewToken(), runner.NewToken()}
	token := rapid.SampledFrom(tokens)
	batch := rapid.SliceOfN(rapid.SampledFrom(ids("a", "b", "c", "d")), 1, 5)
	hash := rapid.SampledFrom([]string{"", runner.HashBytes([]byte("1")), runner.HashBytes([]byte("2"))})
	outcome := rapid.SampledFrom([]runner.Outcome{runner.Delivered, runner.Failed, runner.InDoubt})
	rapid.Check(t, func(rt *rapid.T) {
		exec(t, p, "delete from processed_events")
		m := model{}
		compare := func(what string, got any, err error, want any) {
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				rt.Fatalf("%s = %v, %v, want %v", what, got, err, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(rt *rapid.T) {
				req := runner.ClaimRequest{IDs: batch.Draw(rt, "ids"), Token: token.Draw(rt, "token"),
					Take: runner.TakeOver(rapid.IntRange(0, 15).Draw(rt, "take"))}
				if rapid.Bool().Draw(rt, "unfinished") {
					req.Expires = longExpiry
				}
				for range req.IDs {
					req.PayloadHashes = append(req.PayloadHashes, hash.Draw(rt, "hash"))
				}
				want := m.claim(req)
				got, err := s.Claim(t.Context(), req)
				compare(fmt.Sprintf("Claim(%+v)", req), got, err, want)
			},
			"settle": func(rt *rapid.T) {
				req := runner.SettleRequest{Token: rapid.SampledFrom(append(tokens, "")).Draw(rt, "token")}
				for _, id := range batch.Draw(rt, "ids") {
					req.Settlements = append(req.Settlements, runner.Settlement{ID: id, Outcome: outcome.Draw(rt, "outcome")})
				}
				want := m.settle(req)
				got, err := s.Settle(t.Context(), req)
				compare(fmt.Sprintf("Settle(%+v)", req), got, err, want)
			},
			"give back": func(rt *rapid.T) {
				req := runner.GiveBackRequest{IDs: batch.Draw(rt, "ids"), Token: rapid.SampledFrom(append(tokens, "")).Draw(rt, "token")}
				want := m.giveBack(req)
				got, err := s.GiveBack(t.Context(), req)
				compare(fmt.Sprintf("GiveBack(%+v)", req), got, err, want)
			},
			"expire": func(rt *rapid.T) {
				id := rapid.SampledFrom([]runner.EventID{"a", "b", "c", "d"}).Draw(rt, "id")
				if r := m[id]; r != nil && !r.bare {
					r.expired = true
					expire(t, p, string(id))
				}
			},
			"": func(rt *rapid.T) { compareAll(t, rt, s, m) },
		})
	})
}

// compareAll compares every claim of the store with the model's.
func compareAll(t *testing.T, rt *rapid.T, s Store, m model) {
	got, err := s.Lookup(t.Context(), ids("a", "b", "c", "d"))
	if err != nil || len(got) != len(m) {
		rt.Fatalf("Lookup() found %d claims, %v, want %d", len(got), err, len(m))
	}
	for _, c := range got {
		r := m[c.ID]
		if r == nil || c.Token != r.token || c.PayloadHash != r.hash || c.State() != r.state() {
			rt.Fatalf("the claim of %q reads as %+v, the model has %+v", c.ID, c, r)
		}
	}
}
