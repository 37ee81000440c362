package pgstore

import (
	"bytes"
	"testing"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// committed finds the tag that the server sends once a transaction is durable.
func committed(fromServer []byte) bool { return bytes.Contains(fromServer, []byte("COMMIT\x00")) }

// cutStore is a store whose next answer to a COMMIT is lost with its
// connection, each time cut is called.
func cutStore(t *testing.T) (s *Store, direct string, cut func()) {
	t.Helper()
	direct, schema := pgtest.Schema(t)
	proxy, via := pgtest.NewProxy(t, direct)
	return open(t, via, schema), direct, func() { proxy.CutWhen(committed) }
}

func TestCut_WhenAClaimsAnswerIsLost_TheClaimerIsToldThatItWon(t *testing.T) {
	t.Parallel()
	s, _, cut := cutStore(t)
	wantWon(t, s, claimOf(nil, "tables"), true)
	for _, expires := range []bool{false, true} {
		req := claimOf(nil, "bare")
		if expires {
			req = claimOf(nil, "unfinished")
			req.Expires, req.Take = runner.LiveExpiry, runner.TakeExpired
		}
		cut()
		wantWon(t, s, req, true)
		wantWon(t, s, claimOf(nil, string(req.IDs[0])), false)
	}
}

// The batch is larger than what is looked after in the statement itself.
func TestCut_WhenALargeBatchsAnswerIsLost_EachIsWonOnce(t *testing.T) {
	t.Parallel()
	s, _, cut := cutStore(t)
	wantWon(t, s, claimOf(nil, "id-150"), true)
	var ids []string
	for i := range 300 {
		ids = append(ids, "id-"+formatKey(int64(i)))
	}
	cut()
	won, err := s.Claim(t.Context(), claimOf(nil, ids...))
	if err != nil {
		t.Fatalf("Claim() = %v", err)
	}
	for i, w := range won {
		if w != (i != 150) {
			t.Errorf("%s: won %v", ids[i], w)
		}
	}
}

func TestCut_WhenASettlementsAnswerIsLost_ItIsSettledOnce(t *testing.T) {
	t.Parallel()
	s, direct, cut := cutStore(t)
	req := claimOf(nil, "a", "b")
	req.Expires = runner.LiveExpiry
	wantWon(t, s, req, true)
	cut()
	got, err := s.Settle(t.Context(), runner.SettleRequest{Token: req.Token, Settlements: []runner.Settlement{
		{ID: "a", Outcome: runner.Delivered},
		{ID: "b", Outcome: runner.Failed, DeadLetter: &runner.DeadLetter{
			Kind: runner.KindSend, Name: "host", EventID: "b", LastError: "it said no", Attempts: 1, Certainty: runner.Failed,
		}},
	}})
	if err != nil {
		t.Fatalf("Settle() = %v", err)
	}
	for i, a := range got {
		if a != runner.Settled && a != runner.AlreadySettled {
			t.Errorf("settlement %d: answer %v, want one that says it is done", i, a)
		}
	}
	letters := pgtest.Query(t, direct, "select event_id from "+s.schema+".failed_jobs where resolved_at is null")
	if len(letters) != 1 || letters[0] != "b" {
		t.Errorf("the dead letters are of %q, want one of b", letters)
	}
}

// Who gives back what it had must not hear that it never had it.
func TestCut_WhenAGiveBacksAnswerIsLost_ItIsGivenBack(t *testing.T) {
	t.Parallel()
	s, _, cut := cutStore(t)
	req := claimOf(nil, "a")
	wantWon(t, s, req, true)
	cut()
	got, err := s.GiveBack(t.Context(), runner.GiveBackRequest{IDs: req.IDs, Token: req.Token})
	if err != nil || got[0] != runner.Settled {
		t.Errorf("GiveBack() = %v, %v, want Settled", got, err)
	}
	wantWon(t, s, claimOf(nil, "a"), true)
}

func TestCut_WhenBeginsAnswerIsLost_ItIsTheSameRun(t *testing.T) {
	t.Parallel()
	direct, schema := pgtest.Schema(t)
	proxy, via := pgtest.NewProxy(t, pgtest.Bouncer(t, direct, "transaction"))
	s := open(t, via, schema)
	wantWon(t, s, claimOf(nil, "tables"), true)
	h := take(t, s)
	proxy.CutWhen(committed)
	run := beginRunOf(t, h)
	runs := pgtest.Query(t, direct, "select id::text from "+s.schema+".runs")
	if len(runs) != 1 || runs[0] != formatKey(run.ID) {
		t.Errorf("Begin() gave run %d; recorded are %q", run.ID, runs)
	}
	wantWon(t, h, claimOf(&run, "a"), true)
	proxy.CutWhen(committed)
	wantWon(t, h, claimOf(&run, "b"), true)
}

// On the lock's own session the answer is lost with the lock; the new lock
// finds the claim to be its own.
func TestCut_WhenTheLocksSessionIsCut_TheClaimIsWonUnderTheNextLock(t *testing.T) {
	t.Parallel()
	direct, schema := pgtest.Schema(t)
	proxy, via := pgtest.NewProxy(t, direct)
	s := open(t, via, schema)
	h := take(t, s)
	run := beginRunOf(t, h)
	// A single statement commits by itself: its answer is its row, which says
	// that the fence is ours. A heartbeat's does not.
	proxy.CutWhen(func(b []byte) bool { return bytes.Contains(b, []byte("true")) })
	req := claimOf(&run, "event/1")
	_, err := h.Claim(t.Context(), req)
	wantErr(t, "Claim whose connection was cut", err, runner.ErrLockLost)
	wantLost(t, h, soon)
	again := takeOnceFree(t, s, soon)
	if err := again.Resume(t.Context(), run); err != nil {
		t.Fatalf("Resume() = %v", err)
	}
	wantWon(t, again, req, true)
}
