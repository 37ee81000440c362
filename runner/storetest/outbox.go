package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func testOutbox(t *testing.T, h Harness) {
	t.Run("WhenLeased_NobodyElseGetsIt", func(t *testing.T) { testOutboxLease(t, h) })
	t.Run("WhenRowsShareAKey_OnePublisherHasThemInOrder", func(t *testing.T) { testOutboxKeys(t, h) })
	t.Run("WhenARowWaits_ItsKeyWaits", func(t *testing.T) { testOutboxAgain(t, h) })
	t.Run("WhenARowHasFailed_ItsKeyIsBlocked", func(t *testing.T) { testOutboxDead(t, h) })
	t.Run("WhenALeaseEnds_TheRowGoesToAnother", func(t *testing.T) { testOutboxExpiry(t, h) })
	t.Run("WhenMarkedTwice_ItIsStillOwned", func(t *testing.T) { testOutboxMarkAgain(t, h) })
	t.Run("WhenThereIsMore_TheCursorLeadsOn", func(t *testing.T) { testOutboxCursor(t, h) })
	t.Run("WhenTopicsDiffer_OnlyOneIsTaken", func(t *testing.T) { testOutboxTopic(t, h) })
	t.Run("WhenAdded_ItIsThere", func(t *testing.T) { testOutboxAdd(t, h) })
}

// outbox opens a store with rows that another program inserted: "topic key" or
// "topic" each, in the order of ids from 1.
func outbox(t *testing.T, h Harness, rows ...string) (Place, Store) {
	t.Helper()
	p, s := fresh(t, h)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		topic, key, keyed := strings.Cut(r, " ")
		value := "null"
		if keyed {
			value = quote(key)
		}
		exec(t, p, fmt.Sprintf("insert into outbox (topic, key, payload) values (%s, %s, '{\"n\": %d}')", quote(topic), value, i+1))
	}
	return p, s
}

func lease(limit int) runner.OutboxLease {
	return runner.OutboxLease{Token: runner.NewToken(), Limit: limit, For: longExpiry}
}

// wantLease leases and compares the ids.
func wantLease(t *testing.T, s Store, l runner.OutboxLease, want ...int64) []runner.OutboxRow {
	t.Helper()
	rows, _, err := s.Lease(t.Context(), l)
	if err != nil {
		t.Fatalf("Lease(%+v) = %v", l, err)
	}
	got := make([]int64, len(rows))
	for i, r := range rows {
		got[i] = r.ID
	}
	if !slices.Equal(got, want) {
		t.Fatalf("Lease(%+v) gave rows %v, want %v", l, got, want)
	}
	return rows
}

func wantMark(t *testing.T, s Store, token runner.Token, marks []runner.OutboxMark, want ...bool) {
	t.Helper()
	got, err := s.Mark(t.Context(), token, marks)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("Mark(%+v) = %v, %v, want %v", marks, got, err, want)
	}
}

// marks gives the same verdict to all ids.
func marks(v runner.OutboxVerdict, ids ...int64) []runner.OutboxMark {
	out := make([]runner.OutboxMark, len(ids))
	for i, id := range ids {
		out[i] = runner.OutboxMark{ID: id, Verdict: v, LastError: "status 500"}
		if v == runner.OutboxDead {
			out[i].DeadLetter = &runner.DeadLetter{
				Kind: runner.KindOutbox, Name: "orders", EventID: runner.OutboxEventID(id), PayloadHash: runner.HashBytes([]byte("{}")),
				Payload: []byte("{}"), LastError: "status 500", Attempts: 6, Certainty: runner.Failed,
			}
		}
	}
	return out
}

func testOutboxLease(t *testing.T, h Harness) {
	p, s := outbox(t, h, "orders", "orders", "orders", "orders")
	mine := lease(2)
	rows := wantLease(t, s, mine, 1, 2)
	if r := rows[0]; r.Topic != "orders" || r.Keyed || r.Attempts != 0 || r.Doubtful || string(r.Payload) != `{"n": 1}` || r.EventID() != "outbox-1" {
		t.Errorf("the first row reads as %+v, payload %s", r, r.Payload)
	}
	other := p.Open(t)
	idle := lease(9)
	idle.Idle = true
	wantLease(t, other, idle, 3, 4)
	wantLease(t, other, idle)
	wantMark(t, s, mine.Token, append(marks(runner.OutboxSent, 1, 3), marks(runner.OutboxBack, 2)...), true, false, true)
	wantLease(t, other, lease(9), 2)
	wantRows(t, p, "select id, sent_at is not null, attempts from outbox where id in (1, 3) order by id", "1|"+truth(t, p)+"|1", "3|"+falsehood(t, p)+"|0")
	held, err := s.RenewLeases(t.Context(), idle.Token, []int64{1, 2, 3, 4}, longExpiry)
	if slices.Sort(held); err != nil || !slices.Equal(held, []int64{3, 4}) {
		t.Errorf("RenewLeases() = %v, %v, want rows 3 and 4", held, err)
	}
	b, err := s.Backlog(t.Context(), "")
	if err != nil || b.Pending != 3 || b.Failed != 0 || b.Oldest.IsZero() || b.Age < 0 || b.Age > time.Hour {
		t.Errorf("Backlog() = %+v, %v", b, err)
	}
}

func testOutboxKeys(t *testing.T, h Harness) {
	p, s := outbox(t, h, "orders a", "orders b", "orders a", "orders", "orders b", "orders ")
	mine := lease(4)
	wantLease(t, s, mine, 1, 2, 4, 6) // the first of each before what follows
	wantLease(t, p.Open(t), lease(9)) // all keys are taken
	wantMark(t, s, mine.Token, marks(runner.OutboxSent, 2, 4, 6), true, true, true)
	wantLease(t, p.Open(t), lease(9), 5)
	wantMark(t, s, mine.Token, marks(runner.OutboxSent, 1), true)

	// A row of the key that is committed late, with a lower id, waits for the
	// one that is out, and goes before those that are not.
	wantLease(t, s, mine, 3)
	exec(t, p, "insert into outbox (id, topic, key, payload) values (-1, 'orders', 'a', '{}'), (7, 'orders', 'a', '{}')")
	wantLease(t, p.Open(t), lease(9))
	wantMark(t, s, mine.Token, marks(runner.OutboxSent, 3), true)
	wantLease(t, p.Open(t), lease(1), -1)
}

func testOutboxAgain(t *testing.T, h Harness) {
	p, s := outbox(t, h, "orders a", "orders a", "orders", "orders")
	mine := lease(9)
	wantLease(t, s, mine, 1, 2, 3, 4)
	again := marks(runner.OutboxAgain, 1, 3)
	again[0].After, again[0].Doubtful, again[1].After, again[1].Free = longExpiry, true, 0, true
	wantMark(t, s, mine.Token, append(again, marks(runner.OutboxBack, 2, 4)...), true, true, true, true)
	rows := wantLease(t, s, mine, 3, 4)
	if rows[0].Attempts != 0 || rows[0].Doubtful {
		t.Errorf("a free try counted: %+v", rows[0])
	}
	exec(t, p, "update outbox set leased_until = '2001-01-01T00:00:00.000Z' where id = 1")
	rows = wantLease(t, s, lease(9), 1, 2)
	if rows[0].Attempts != 1 || !rows[0].Doubtful || rows[1].Doubtful {
		t.Errorf("after a doubtful try the rows read as %+v", rows)
	}
	wantRows(t, p, "select last_error from outbox where id = 1", "status 500")
}

func testOutboxDead(t *testing.T, h Harness) {
	p, s := outbox(t, h, "orders a", "orders a", "orders")
	fail := func(id int64) {
		t.Helper()
		mine := lease(9)
		row, err := s.LeaseFailed(t.Context(), id, mine.Token, longExpiry)
		if err != nil || row.ID != id {
			t.Fatalf("LeaseFailed(%d) = %+v, %v", id, row, err)
		}
		if _, err := p.Open(t).LeaseFailed(t.Context(), id, runner.NewToken(), longExpiry); !errors.Is(err, runner.ErrOutboxLeased) {
			t.Fatalf("LeaseFailed() of a leased row = %v", err)
		}
		wantMark(t, s, mine.Token, marks(runner.OutboxDead, id), true)
	}
	mine := lease(9)
	wantLease(t, s, mine, 1, 2, 3)
	wantMark(t, s, mine.Token, append(marks(runner.OutboxDead, 1), marks(runner.OutboxBack, 2, 3)...), true, true, true)
	wantLease(t, s, mine, 3)
	wantRows(t, p, "select kind, name, event_id, last_error, attempts, certainty from failed_jobs", "outbox|orders|outbox-1|status 500|6|failed")
	if b, err := s.Backlog(t.Context(), "orders"); err != nil || b.Pending != 2 || b.Failed != 1 {
		t.Errorf("Backlog() = %+v, %v", b, err)
	}
	fail(1)
	wantRows(t, p, "select resolution from failed_jobs order by id", "tried again", "-")

	skip := lease(9)
	skip.SkipFailed = true
	wantLease(t, s, skip, 2)
	if _, err := s.LeaseFailed(t.Context(), 1, runner.NewToken(), longExpiry); !errors.Is(err, runner.ErrOutboxLeased) {
		t.Fatalf("LeaseFailed() while its key is out = %v", err)
	}
	wantMark(t, s, skip.Token, marks(runner.OutboxBack, 2), true)
	wantLease(t, s, lease(9))

	// A person has dealt with it: it stays where it is, and blocks nobody.
	if ok, err := s.Resolve(t.Context(), 2, "sent by hand"); err != nil || !ok {
		t.Fatalf("Resolve() = %v, %v", ok, err)
	}
	last := lease(9)
	wantLease(t, s, last, 2)
	wantMark(t, s, last.Token, marks(runner.OutboxDead, 2), true)

	if err := s.PutBack(t.Context(), 2); err != nil {
		t.Fatalf("PutBack() = %v", err)
	}
	wantErr(t, "PutBack() again", s.PutBack(t.Context(), 2), runner.ErrNoOutboxRow)
	_, err := s.LeaseFailed(t.Context(), 3, runner.NewToken(), longExpiry)
	wantErr(t, "LeaseFailed() of a row that has not failed", err, runner.ErrNoOutboxRow)
	rows := wantLease(t, s, last, 2)
	if rows[0].Attempts != 0 {
		t.Errorf("a row that was put back has %d attempts", rows[0].Attempts)
	}
	wantMark(t, s, last.Token, marks(runner.OutboxSent, 2), true)
	wantRows(t, p, "select count(*) from failed_jobs where resolved_at is null", "0")
}

func testOutboxExpiry(t *testing.T, h Harness) {
	p, s := outbox(t, h, "orders a", "orders")
	mine, other := lease(9), lease(9)
	wantLease(t, s, mine, 1, 2)
	wantLease(t, s, other)
	exec(t, p, "update outbox set leased_until = '2001-01-01T00:00:00.000Z'")
	// It comes late, but nobody else has taken them.
	held, err := s.RenewLeases(t.Context(), mine.Token, []int64{1, 2}, longExpiry)
	if err != nil || len(held) != 2 {
		t.Fatalf("RenewLeases() = %v, %v", held, err)
	}
	wantLease(t, s, other)
	exec(t, p, "update outbox set leased_until = '2001-01-01T00:00:00.000Z'")
	rows := wantLease(t, s, other, 1, 2)
	if !rows[0].Doubtful || !rows[1].Doubtful {
		t.Errorf("it is not known what became of %+v", rows)
	}
	wantMark(t, s, mine.Token, marks(runner.OutboxSent, 1, 2), false, false)
	wantMark(t, s, other.Token, marks(runner.OutboxSent, 1, 2), true, true)
}

func testOutboxMarkAgain(t *testing.T, h Harness) {
	p, s := outbox(t, h, "orders", "orders")
	mine := lease(9)
	wantLease(t, s, mine, 1, 2)
	all := append(marks(runner.OutboxSent, 1), marks(runner.OutboxDead, 2)...)
	for range 2 { // as after an answer that was lost
		wantMark(t, s, mine.Token, all, true, true)
	}
	wantRows(t, p, "select count(*) from failed_jobs", "1")
	wantRows(t, p, "select attempts from outbox", "1", "1")
	// One dead letter that cannot be saved takes all with it.
	broken := marks(runner.OutboxDead, 1)
	broken[0].DeadLetter.LastError = ""
	if _, err := s.Mark(t.Context(), mine.Token, broken); !errors.Is(err, runner.ErrInvalid) {
		t.Errorf("Mark() with a broken dead letter = %v", err)
	}
}

func testOutboxCursor(t *testing.T, h Harness) {
	p, s := outbox(t, h, "orders", "orders", "orders", "orders")
	for i := range 5 {
		exec(t, p, fmt.Sprintf("insert into outbox (topic, key, payload) values ('orders', 'k%d', '{}')", i))
	}
	var got []int64
	l := lease(2)
	for range 20 {
		rows, next, err := s.Lease(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			got = append(got, r.ID)
		}
		if l.From = next; len(rows) == 0 && next == (runner.OutboxCursor{}) && len(got) == 9 {
			break
		}
	}
	if slices.Sort(got); !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Fatalf("the cursor led to %v", got)
	}
	// What is committed late with a lower id is found from the beginning.
	exec(t, p, "insert into outbox (id, topic, payload) values (-5, 'orders', '{}')")
	wantLease(t, s, lease(2), -5)
}

func testOutboxTopic(t *testing.T, h Harness) {
	_, s := outbox(t, h, "orders", "mails", "mails a", "orders a")
	l := lease(9)
	l.Topic = "orders"
	wantLease(t, s, l, 1) // the order of a key holds over topics
	l.Topic = "mails"
	wantLease(t, s, l, 2, 3)
	if b, err := s.Backlog(t.Context(), "mails"); err != nil || b.Pending != 2 {
		t.Errorf("Backlog() = %+v, %v", b, err)
	}
}

func testOutboxAdd(t *testing.T, h Harness) {
	p, s := fresh(t, h)
	add := func(a runner.OutboxAdder, e runner.OutboxEntry, want int64) {
		t.Helper()
		if id, err := a.AddToOutbox(t.Context(), e); err != nil || id != want {
			t.Fatalf("AddToOutbox(%+v) = %d, %v, want %d", e, id, err, want)
		}
	}
	first := runner.OutboxEntry{Topic: "orders", Key: "a", Payload: []byte(`{"n":1}`), Token: runner.NewToken()}
	add(s, first, 1)
	add(s, first, 1) // as after an answer that was lost
	add(s, runner.OutboxEntry{Topic: "orders", Payload: []byte(`[]`), Token: runner.NewToken()}, 2)
	held := mustLock(t, s, "nightly").(runner.OutboxAdder)
	add(held, runner.OutboxEntry{Topic: "orders", Payload: []byte(`[]`), Token: runner.NewToken()}, 3)
	wantRows(t, p, "select id, topic, key from outbox order by id", "1|orders|a", "2|orders|-", "3|orders|-")
	for _, e := range []runner.OutboxEntry{
		{Topic: "", Payload: []byte("{}")}, {Topic: "a\x00", Payload: []byte("{}")}, {Topic: "a", Key: "\n", Payload: []byte("{}")},
		{Topic: "a", Payload: []byte("{")}, {Topic: "a"}, {Topic: "a", Payload: []byte("\"\\u0000\"")},
	} {
		e.Token = runner.NewToken()
		_, err := s.AddToOutbox(t.Context(), e)
		wantErr(t, fmt.Sprintf("AddToOutbox(%+v)", e), err, runner.ErrInvalid)
	}
	rows := wantLease(t, s, lease(9), 1, 2, 3)
	if rows[0].Doubtful || rows[1].Doubtful {
		t.Errorf("new rows are in doubt: %+v", rows)
	}
}

func falsehood(t *testing.T, p Place) string {
	t.Helper()
	return rows(t, p, "select 1 = 0")[0]
}
