package broker

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncectl/oncectl/runner"
)

// everything is what a job can ask of a store.
type everything interface {
	runner.Claimer
	runner.Renewer
	runner.Turner
	looker
}

// story makes one call of each kind and more, and returns what was answered.
func story(t *testing.T, c everything, run *runner.Run) (answers []any) {
	t.Helper()
	ctx := context.Background()
	note := func(err error, v ...any) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, v)
	}
	ids := []runner.EventID{"a", "a", " b//%2F?#", "<ö&\u2028>", "\\u0000"}
	won, err := c.Claim(ctx, runner.ClaimRequest{
		IDs: ids, Token: aToken, Owner: "here/1", Run: run, Expires: 90*time.Second + time.Nanosecond,
		PayloadHashes: []string{runner.HashBytes(nil), "", "", "", ""}, Targets: []string{"example.com", "", "ü", "", ""},
		Take: runner.TakeExpired | runner.TakeFailed | runner.TakeInDoubt | runner.TakeBareOfRun,
	})
	note(err, won)
	won, err = c.Claim(ctx, runner.ClaimRequest{IDs: []runner.EventID{"bare", "a"}, Token: another, Owner: "here/1", Run: run})
	note(err, won)
	found, err := c.Lookup(ctx, append(ids, "unknown"))
	note(err, found)
	n, err := c.Renew(ctx, []runner.EventID{"a", "bare", "unknown"}, aToken, time.Hour)
	note(err, n)
	got, err := c.Settle(ctx, runner.SettleRequest{Run: run, Token: aToken, Settlements: []runner.Settlement{
		{ID: "a", Outcome: runner.Delivered}, {ID: "a", Outcome: runner.Delivered}, {ID: "bare", Outcome: runner.Delivered},
		{ID: "unknown", Outcome: runner.InDoubt}, {ID: ids[2], Outcome: runner.Failed, DeadLetter: &runner.DeadLetter{
			Kind: runner.KindSend, Name: "example.com", EventID: ids[2], PayloadHash: runner.HashBytes([]byte("x")),
			Payload: []byte{}, Request: []byte("\x00\xff{"), LastError: "one\n\t\u0001two", Attempts: 3, Certainty: runner.Failed, RetryAt: epoch,
		}},
		{ID: ids[3], Outcome: runner.InDoubt, DeadLetter: &runner.DeadLetter{Kind: runner.KindClaim, Name: "x", LastError: "y", Certainty: runner.InDoubt}},
	}})
	note(err, got)
	got, won, err = c.Turn(ctx,
		runner.SettleRequest{Run: run, Token: aToken, Settlements: []runner.Settlement{{ID: ids[4], Outcome: runner.Delivered}}},
		runner.ClaimRequest{IDs: []runner.EventID{"next", "a"}, Token: aToken, Owner: "here/1", Run: run, Expires: time.Second, Take: runner.TakeFailed})
	note(err, got, won)
	got, err = c.GiveBack(ctx, runner.GiveBackRequest{IDs: []runner.EventID{"next", "bare", "a", "unknown"}, Token: aToken, Run: run})
	note(err, got)
	got, err = c.GiveBack(ctx, runner.GiveBackRequest{IDs: []runner.EventID{"bare"}, Run: run})
	note(err, got)
	found, err = c.Lookup(ctx, append(ids, "bare", "next"))
	note(err, found)
	return answers
}

func TestClient_WhenItAsksThroughTheBroker_ItIsAnsweredAsByTheStore(t *testing.T) {
	direct, behind := newMemory(), newMemory()
	want := story(t, whole{direct}, &theRun)
	// The client's run is not sent: whoever reaches the socket is of the run.
	got := story(t, dial(t, serving(t, whole{behind})), &runner.Run{ID: 999})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-direct +broker):\n%s", diff)
	}
	if diff := cmp.Diff(direct.requests(), behind.requests(), cmp.AllowUnexported(renewRequest{})); diff != "" {
		t.Errorf("what reached the store (-direct +broker):\n%s", diff)
	}
}

// A store that cannot turn settles first: a crash in between then leaves less
// unfinished, not more.
func TestClient_WhenTheStoreCannotTurn_TheServerSettlesAndThenClaims(t *testing.T) {
	m := newMemory()
	c := dial(t, serving(t, m))
	answers, won, err := c.Turn(context.Background(),
		runner.SettleRequest{Settlements: []runner.Settlement{{ID: "a", Outcome: runner.Delivered}}},
		runner.ClaimRequest{IDs: []runner.EventID{"b"}, Token: aToken})
	if err != nil || !cmp.Equal(answers, []runner.SettleAnswer{runner.NotClaimed}) || !cmp.Equal(won, []bool{true}) {
		t.Fatalf("answers %v, won %v, error %v", answers, won, err)
	}
	asked := m.requests()
	if _, ok := asked[0].(runner.SettleRequest); !ok || len(asked) != 2 {
		t.Errorf("asked for %#v", asked)
	}
}

// The largest payload there is.
func TestClient_WhenADeadLetterIsAsLargeAsCanBe_ItArrives(t *testing.T) {
	m := newMemory()
	c := dial(t, serving(t, whole{m}))
	want := []runner.Settlement{{ID: "a", Outcome: runner.Failed, DeadLetter: &runner.DeadLetter{
		Kind: runner.KindSend, EventID: "a", Payload: make([]byte, runner.MaxBodyBytes), LastError: "no", Certainty: runner.Failed,
	}}}
	if _, err := c.Settle(context.Background(), runner.SettleRequest{Settlements: want}); err != nil {
		t.Fatal(err)
	}
	if got := m.requests()[0].(runner.SettleRequest).Settlements; !reflect.DeepEqual(want, got) {
		t.Errorf("it arrived as another")
	}
}
