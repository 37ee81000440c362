package outbox

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// fakeRow is a row as a store has it.
type fakeRow struct {
	runner.OutboxRow
	token  runner.Token
	until  time.Time // of the lease, or when the next try is due
	sent   bool
	failed bool
	err    string
	letter *runner.DeadLetter
}

func (r *fakeRow) leased(now time.Time) bool { return r.token != "" && now.Before(r.until) }

// fakeStore is the outbox in its plainest form: what runner's comments say.
type fakeStore struct {
	mu     sync.Mutex
	rows   []*fakeRow // by id
	leases []time.Time
	fail   error
}

func (s *fakeStore) add(topic, key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := int64(1)
	if n := len(s.rows); n > 0 {
		id = s.rows[n-1].ID + 1
	}
	s.rows = append(s.rows, &fakeRow{OutboxRow: runner.OutboxRow{ID: id, Topic: topic, Key: key, Keyed: key != "", Payload: []byte("{}")}})
	return id
}

// addLate adds a row with an id that is lower than all others.
func (s *fakeStore) addLate() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.rows[0].ID - 1
	s.rows = slices.Insert(s.rows, 0, &fakeRow{OutboxRow: runner.OutboxRow{ID: id, Topic: "t"}})
	return id
}

func (s *fakeStore) row(id int64) *fakeRow {
	i := slices.IndexFunc(s.rows, func(r *fakeRow) bool { return r.ID == id })
	return s.rows[i]
}

func (s *fakeStore) get(id int64) fakeRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.row(id)
}

func (s *fakeStore) Lease(_ context.Context, l runner.OutboxLease) (out []runner.OutboxRow, next runner.OutboxCursor, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.leases = append(s.leases, now)
	if s.fail != nil {
		return nil, next, s.fail
	}
	blocked := map[string]bool{}
	for _, r := range s.rows {
		if r.Keyed && r.leased(now) {
			blocked[r.Key] = true
		}
	}
	for _, r := range s.rows {
		switch {
		case r.sent || r.failed && l.SkipFailed, r.Keyed && blocked[r.Key], !r.Keyed && r.ID <= l.From.ID && l.From.ID != 0:
			continue
		case r.failed || now.Before(r.until):
			blocked[r.Key] = r.Keyed
			continue
		}
		if len(out) == l.Limit {
			next.ID = out[len(out)-1].ID
			break
		}
		r.Doubtful = r.Doubtful || r.token != ""
		r.token, r.until = l.Token, now.Add(l.For)
		out = append(out, r.OutboxRow)
	}
	return out, next, nil
}

func (s *fakeStore) RenewLeases(_ context.Context, token runner.Token, ids []int64, d time.Duration) (held []int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if r := s.row(id); r.token == token && !r.sent {
			r.until = time.Now().Add(d)
			held = append(held, id)
		}
	}
	return held, s.fail
}

func (s *fakeStore) Mark(_ context.Context, token runner.Token, marks []runner.OutboxMark) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	owned := make([]bool, len(marks))
	for i, m := range marks {
		r := s.row(m.ID)
		if owned[i] = r.token == token && !r.sent; !owned[i] {
			continue
		}
		r.token, r.until = "", time.Time{}
		r.err = m.LastError
		r.Doubtful = r.Doubtful || m.Doubtful
		if !m.Free && m.Verdict != runner.OutboxBack {
			r.Attempts++
		}
		switch m.Verdict {
		case runner.OutboxSent:
			r.sent = true
		case runner.OutboxAgain:
			r.until = time.Now().Add(m.After)
		case runner.OutboxDead:
			r.failed, r.letter = true, m.DeadLetter
		}
	}
	return owned, nil
}

// receiver is a Publisher that notes what came and when.
type receiver struct {
	mu       sync.Mutex
	answer   func(row runner.OutboxRow, try int) runner.DeliveryResult
	takes    time.Duration
	began    time.Time
	tries    map[int64][]time.Duration // since began
	order    []int64
	inFlight int
	most     int
	keys     map[string]int
	overlap  bool // two of one key at once
}

func newReceiver(answer func(row runner.OutboxRow, try int) runner.DeliveryResult) *receiver {
	return &receiver{answer: answer, takes: 5 * time.Millisecond, began: time.Now(), tries: map[int64][]time.Duration{}, keys: map[string]int{}}
}

func ok(runner.OutboxRow, int) runner.DeliveryResult { return delivered() }

func delivered() runner.DeliveryResult {
	return runner.DeliveryResult{Outcome: runner.Delivered, Status: 200, Attempts: 1}
}

func status(n int, outcome runner.Outcome) runner.DeliveryResult {
	return runner.DeliveryResult{Outcome: outcome, Status: n, Attempts: 1, LastError: "it answered otherwise"}
}

func unsent() runner.DeliveryResult {
	return runner.DeliveryResult{Outcome: runner.Failed, Attempts: 1, LastError: "connection refused"}
}

func (r *receiver) Publish(_ context.Context, row runner.OutboxRow) runner.DeliveryResult {
	r.mu.Lock()
	r.tries[row.ID] = append(r.tries[row.ID], time.Since(r.began))
	try := len(r.tries[row.ID])
	r.order = append(r.order, row.ID)
	r.inFlight++
	r.most = max(r.most, r.inFlight)
	if row.Keyed {
		r.keys[row.Key]++
		r.overlap = r.overlap || r.keys[row.Key] > 1
	}
	r.mu.Unlock()
	time.Sleep(r.takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	if row.Keyed {
		r.keys[row.Key]--
	}
	return r.answer(row, try)
}

// drain is a run with the defaults of the command line.
func drain(s *fakeStore, r Publisher) *Drain {
	return &Drain{
		Options: Options{Batch: 100, Concurrency: 4, Retries: 5, Backoff: time.Second, BackoffMax: time.Minute, MaxWait: 5 * time.Minute},
		Store:   s, Publisher: r, Token: runner.NewToken(), Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 },
	}
}

func mustRun(t *testing.T, d *Drain, want Result) {
	t.Helper()
	got, err := d.Run(t.Context())
	if got.LastError = ""; err != nil || got != want {
		t.Fatalf("Run() = %+v, %v, want %+v", got, err, want)
	}
}
