package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testDeadLetters(t *testing.T, h Harness) {
	t.Run("WhenTheStoreIsNew_ThereAreNone", func(t *testing.T) {
		_, s := fresh(t, h)
		wantLetters(t, s, runner.DeadLetterFilter{All: true})
		_, s = fresh(t, h)
		_, err := s.DeadLetter(t.Context(), 1)
		wantErr(t, "DeadLetter(1)", err, runner.ErrNoDeadLetter)
		_, s = fresh(t, h)
		wantResolve(t, s, 1, "x", false)
	})
	t.Run("EachDeadLetter_Filters", func(t *testing.T) { testLetterFilters(t, h) })
	t.Run("EachDeadLetter_IsOldestFirstAndMayUseTheStore", func(t *testing.T) { testEachLetter(t, h) })
	t.Run("DeadLetter_ShowsAllOfIt", func(t *testing.T) { testLetterShown(t, h) })
	t.Run("Resolve_OnceWithItsNote", func(t *testing.T) { testResolve(t, h) })
	t.Run("Resolve_WhenManyTry_OneDoes", func(t *testing.T) { testResolvers(t, h) })
	t.Run("WhenTheKindIsUnknown_IsRefusedWithItsOutcome", func(t *testing.T) { testLetterKinds(t, h) })
	t.Run("WhenForNewerBinaries_IsRefused", func(t *testing.T) { testLettersNewer(t, h) })
}

// letters collects what EachDeadLetter shows.
func letters(t *testing.T, s runner.DeadLetters, f runner.DeadLetterFilter) []runner.DeadLetter {
	t.Helper()
	var got []runner.DeadLetter
	err := s.EachDeadLetter(t.Context(), f, func(d runner.DeadLetter) error {
		got = append(got, d)
		return nil
	})
	if err != nil {
		t.Fatalf("EachDeadLetter(%+v) = %v", f, err)
	}
	return got
}

// wantLetters compares the event ids of the dead letters that f selects.
func wantLetters(t *testing.T, s runner.DeadLetters, f runner.DeadLetterFilter, want ...string) {
	t.Helper()
	got := []string{}
	for _, d := range letters(t, s, f) {
		got = append(got, string(d.EventID))
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("EachDeadLetter(%+v) showed %q, want %q", f, got, want)
	}
}

func wantResolve(t *testing.T, s runner.DeadLetters, id int64, note string, want bool) {
	t.Helper()
	if ok, err := s.Resolve(t.Context(), id, note); err != nil || ok != want {
		t.Fatalf("Resolve(%d, %q) = %v, %v, want %v", id, note, ok, err, want)
	}
}

// save makes a dead letter as senders do: with the outcome of an event.
func save(t *testing.T, s Store, d *runner.DeadLetter) runner.DeadLetter {
	t.Helper()
	req := unfinished(string(d.EventID))
	claimAll(t, s, req)
	wantSettle(t, s, settling(req.Token, runner.Settlement{ID: d.EventID, Outcome: d.Certainty, DeadLetter: d}), runner.Settled)
	all := letters(t, s, runner.DeadLetterFilter{All: true})
	return all[len(all)-1]
}

func testLetterFilters(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	for _, d := range []struct {
		id   string
		kind runner.Kind
		name string
	}{
		{"send", runner.KindSend, "example.net"}, {"claim", runner.KindClaim, "a"},
		{"outbox", runner.KindOutbox, "example.net"}, {"run", runner.KindRun, "nightly"}, {"Send", runner.KindSend, "Example.net"},
	} {
		letter := sendLetter(d.id)
		letter.Kind, letter.Name = d.kind, d.name
		save(t, s, letter)
	}
	wantLetters(t, s, runner.DeadLetterFilter{}, "send", "claim", "outbox", "run", "Send")
	wantLetters(t, s, runner.DeadLetterFilter{Kind: runner.KindSend}, "send", "Send")
	wantLetters(t, s, runner.DeadLetterFilter{Kind: runner.KindRun}, "run")
	wantLetters(t, s, runner.DeadLetterFilter{Name: "example.net"}, "send", "outbox")
	wantLetters(t, s, runner.DeadLetterFilter{Name: "example.net", Kind: runner.KindOutbox}, "outbox")
	for _, pattern := range []string{"example%", "example_net", "' or 1 = 1 --", "\xff", "a\x00"} {
		wantLetters(t, s, runner.DeadLetterFilter{Name: pattern})
	}

	at := func(d time.Duration) string { return quote(time.Now().Add(d).UTC().Format("2006-01-02T15:04:05.000Z")) }
	exec(t, p, "update failed_jobs set failed_at = "+at(-time.Hour)+" where event_id in ('claim', 'outbox')")
	wantLetters(t, s, runner.DeadLetterFilter{Since: 59 * time.Minute}, "send", "run", "Send")
	wantLetters(t, s, runner.DeadLetterFilter{Since: 61 * time.Minute}, "send", "claim", "outbox", "run", "Send")
	wantLetters(t, s, runner.DeadLetterFilter{Since: 59 * time.Minute, Name: "nightly"}, "run")

	// Due is what has a time that has come: not what has none.
	exec(t, p, "update failed_jobs set retry_at = null where event_id = 'claim'")
	exec(t, p, "update failed_jobs set retry_at = "+at(-time.Minute)+" where event_id in ('send', 'outbox')")
	exec(t, p, "update failed_jobs set retry_at = "+at(time.Minute)+" where event_id = 'run'")
	wantLetters(t, s, runner.DeadLetterFilter{Due: true}, "send", "outbox")
	wantLetters(t, s, runner.DeadLetterFilter{Due: true, Kind: runner.KindSend}, "send")
	wantResolve(t, s, letters(t, s, runner.DeadLetterFilter{Kind: runner.KindOutbox})[0].ID, "seen", true)
	wantLetters(t, s, runner.DeadLetterFilter{Due: true}, "send")
	wantLetters(t, s, runner.DeadLetterFilter{}, "send", "claim", "run", "Send")
	wantLetters(t, s, runner.DeadLetterFilter{All: true}, "send", "claim", "outbox", "run", "Send")
	wantLetters(t, s, runner.DeadLetterFilter{All: true, Due: true}, "send", "outbox")
}

func testEachLetter(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	save(t, s, sendLetter("first"))
	for range 11 { // 2048: more than one fetch
		exec(t, p, "insert into failed_jobs (kind, name, last_error, certainty, payload) select kind, name, last_error, certainty, payload from failed_jobs")
	}
	var last int64
	n := 0
	err := s.EachDeadLetter(t.Context(), runner.DeadLetterFilter{}, func(d runner.DeadLetter) error {
		if d.ID <= last || d.Payload != nil {
			return fmt.Errorf("dead letter %d comes after %d, with %d bytes of payload", d.ID, last, len(d.Payload))
		}
		last, n = d.ID, n+1
		if n%256 != 0 {
			return nil
		}
		_, err := s.Resolve(t.Context(), d.ID, "seen")
		return err
	})
	if err != nil || n != 2048 {
		t.Fatalf("EachDeadLetter() showed %d, %v, want 2048", n, err)
	}
	wantRows(t, p, "select count(*) from failed_jobs where resolved_at is not null", "8")

	enough := errors.New("enough")
	err = s.EachDeadLetter(t.Context(), runner.DeadLetterFilter{}, func(runner.DeadLetter) error { return enough })
	wantErr(t, "EachDeadLetter with a callback that fails", err, enough)
	wantResolve(t, s, last-1, "after it", true)
}

func testLetterShown(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	want := sendLetter("é/1")
	want.RetryAt = want.RetryAt.Add(7 * time.Millisecond).In(time.FixedZone("", 3600))
	save(t, s, want)
	plain := &runner.DeadLetter{Kind: runner.KindClaim, Name: "b", EventID: "b", LastError: "x\ny", Attempts: 1, Certainty: runner.Failed}
	id := save(t, s, plain).ID
	got, err := p.Open(t).DeadLetter(t.Context(), id)
	if err != nil || got.PayloadHash != "" || got.Payload != nil || got.Request != nil || !got.RetryAt.IsZero() || got.LastError != "x\ny" {
		t.Errorf("DeadLetter(%d) = %+v, %v, want what was not given left out", id, got, err)
	}
	got, err = s.DeadLetter(t.Context(), id-1)
	if err != nil || got.ID != id-1 || got.Kind != want.Kind || got.Name != want.Name || got.EventID != want.EventID ||
		got.PayloadHash != want.PayloadHash || string(got.Payload) != "body" || string(got.Request) != string(want.Request) ||
		got.LastError != want.LastError || got.Attempts != 3 || got.Certainty != runner.InDoubt || !got.RetryAt.Equal(want.RetryAt) ||
		!got.ResolvedAt.IsZero() || got.Resolution != "" {
		t.Errorf("DeadLetter(%d) = %+v, %v, want %+v", id-1, got, err, want)
	}
	if d := time.Since(got.FailedAt); d < -time.Second || d > time.Minute {
		t.Errorf("it failed at %v, but it is %v", got.FailedAt, time.Now())
	}
	for _, none := range []int64{0, -1, id + 1, 1<<63 - 1, -1 << 63} {
		_, err := s.DeadLetter(t.Context(), none)
		wantErr(t, "DeadLetter of an id that is not there", err, runner.ErrNoDeadLetter)
	}
}

func testResolve(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	a, b := save(t, s, sendLetter("a")), save(t, s, sendLetter("b"))
	const note = "called them: it's there\n\"ok\""
	wantResolve(t, s, a.ID, note, true)
	wantResolve(t, p.Open(t), a.ID, "again", false)
	wantResolve(t, s, b.ID+1, "nobody's", false)
	got, err := s.DeadLetter(t.Context(), a.ID)
	if d := time.Since(got.ResolvedAt); err != nil || got.Resolution != note || d < -time.Second || d > time.Minute {
		t.Errorf("the resolved dead letter reads as %+v, %v", got, err)
	}
	// A person's word about the letter says nothing of the event.
	wantState(t, s, "a", "in_doubt")
	wantResolve(t, s, b.ID, "", true)
	wantResolve(t, s, b.ID, "late", false)
	wantLetters(t, s, runner.DeadLetterFilter{})
	wantLetters(t, s, runner.DeadLetterFilter{All: true}, "a", "b")
}

func testResolvers(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	id := save(t, s, sendLetter("a")).ID
	var winner atomic.Value
	contend(t, p, 16, func(i int, s Store) {
		ok, err := s.Resolve(t.Context(), id, itoa(i))
		if err != nil {
			t.Errorf("Resolve() = %v", err)
		}
		if ok && winner.Swap(itoa(i)) != nil {
			t.Error("two resolved the same dead letter")
		}
	})
	if got, err := s.DeadLetter(t.Context(), id); err != nil || winner.Load() != got.Resolution {
		t.Errorf("the dead letter has the note %q, %v, of whom resolved it: %v", got.Resolution, err, winner.Load())
	}
}

func testLetterKinds(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	for i, change := range []func(*runner.DeadLetter){
		func(d *runner.DeadLetter) { d.Kind = "" },
		func(d *runner.DeadLetter) { d.Kind = "Send" },
		func(d *runner.DeadLetter) { d.Certainty = runner.Delivered },
		func(d *runner.DeadLetter) { d.Certainty = "" },
		func(d *runner.DeadLetter) { d.LastError = "" },
		func(d *runner.DeadLetter) { d.Request = []byte("{") },
	} {
		req := unfinished("e" + itoa(i))
		claimAll(t, s, req)
		d := sendLetter("e" + itoa(i))
		change(d)
		_, err := s.Settle(t.Context(), settling(req.Token, runner.Settlement{ID: d.EventID, Outcome: runner.Failed, DeadLetter: d}))
		wantErr(t, fmt.Sprintf("Settle with the dead letter %+v", d), err, runner.ErrInvalid)
		wantState(t, s, "e"+itoa(i), "unfinished")
	}
	wantRows(t, p, "select count(*) from failed_jobs", "0")
}

func testLettersNewer(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	id := save(t, s, sendLetter("a")).ID
	claimAll(t, s, sending("b"))
	expire(t, p, "b")
	exec(t, p, "update schema_info set version = 999, oldest_binary = 999")
	s = p.Open(t)
	_, err := s.Sweep(t.Context())
	wantErr(t, "Sweep", err, runner.ErrRefused)
	_, err = s.Resolve(t.Context(), id, "x")
	wantErr(t, "Resolve", err, runner.ErrRefused)
	_, err = s.DeadLetter(t.Context(), id)
	wantErr(t, "DeadLetter", err, runner.ErrRefused)
	err = s.EachDeadLetter(t.Context(), runner.DeadLetterFilter{}, func(runner.DeadLetter) error { return nil })
	wantErr(t, "EachDeadLetter", err, runner.ErrRefused)
	_, _, err = s.Turn(t.Context(), runner.SettleRequest{Settlements: settleAll(runner.Delivered, "b")}, bare("c"))
	wantErr(t, "Turn", err, runner.ErrRefused)
	wantRows(t, p, "select count(*) from failed_jobs where resolved_at is null", "1")
	wantRows(t, p, "select count(*) from processed_events where outcome is null", "1")
	wantRows(t, p, "select count(*) from processed_events", "2")
}
