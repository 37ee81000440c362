package cmd_test

import (
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// boxPlace is a place with a connection to its store, as an application has.
type boxPlace struct {
	*place
	db       *sql.DB
	schema   string // empty: SQLite
	receiver *boxReceiver
}

func eachOutbox(t *testing.T, test func(*testing.T, *boxPlace)) {
	eachStore(t, func(t *testing.T, p *place) { test(t, newBoxPlace(t, p)) })
}

func newBoxPlace(t *testing.T, p *place) *boxPlace {
	p.start("schema", "apply").ends(0)
	b := &boxPlace{place: p, receiver: newBoxReceiver(t)}
	driver, dsn := "sqlite", "file:"+filepath.Join(p.dir, "state", "oncectl.db")+"?_pragma=busy_timeout(10000)"
	env := map[string]string{}
	for _, kv := range p.env {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	if u := env["ONCECTL_DATABASE_URL"]; u != "" {
		b.schema = env["ONCECTL_SCHEMA"]
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		q := parsed.Query()
		q.Set("search_path", b.schema)
		parsed.RawQuery = q.Encode()
		driver, dsn = "pgx", parsed.String()
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	b.db = db
	return b
}

func (b *boxPlace) exec(query string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(query, args...); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
}

// count is the number that a query gives.
func (b *boxPlace) count(query string) (n int) {
	b.t.Helper()
	if err := b.db.QueryRow(query).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// insert adds rows as an application does, in one statement.
func (b *boxPlace) insert(n int, topic string, key func(int) string) {
	b.t.Helper()
	var values strings.Builder
	for i := range n {
		k := "null"
		if key != nil {
			k = "'" + key(i) + "'"
		}
		fmt.Fprintf(&values, ", ('%s', %s, '{\"n\": %d}')", topic, k, i)
	}
	b.exec("insert into outbox (topic, key, payload) values " + values.String()[2:])
}

// leasesEnd makes the time of all leases pass.
func (b *boxPlace) leasesEnd() {
	b.t.Helper()
	b.exec("update outbox set leased_until = '2001-01-01T00:00:00.000Z' where token is not null and leased_until is not null")
}

func (b *boxPlace) publish(args ...string) *process {
	return b.start(append([]string{"outbox", "publish", "--url", b.receiver.URL}, args...)...)
}

// boxReceiver notes what it gets.
type boxReceiver struct {
	*httptest.Server

	mu     sync.Mutex // guards all below
	answer func(id, body string) int
	ids    []string
	times  map[string]int
}

// answers makes it answer otherwise than with 200.
func (r *boxReceiver) answers(f func(id, body string) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func newBoxReceiver(t *testing.T) *boxReceiver {
	r := &boxReceiver{times: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		id := req.Header.Get("Idempotency-Key")
		body, _ := io.ReadAll(req.Body) // a publisher that is killed breaks off
		r.mu.Lock()
		r.ids = append(r.ids, id)
		r.times[id]++
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			w.WriteHeader(answer(id, string(body)))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *boxReceiver) got(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times[id]
}

func (r *boxReceiver) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids)
}

func TestOutbox_WhenFourPublish_EachOnceAndEachKeyInOrder(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		const rows = 2000
		key := func(i int) string { return fmt.Sprintf("key %d", i*7%50) }
		b.insert(rows, "orders", key)
		var all []*process
		for range 4 {
			all = append(all, b.publish("-o", "json"))
		}
		for _, pr := range all {
			pr.ends(0)
			if !strings.Contains(pr.out.String(), `"ended":"empty"`) {
				t.Errorf("it ended with %s", pr.out.String())
			}
		}
		last := map[string]int{}
		for _, id := range b.receiver.ids {
			var n int
			fmt.Sscanf(id, "outbox-%d", &n)
			if k := key(n - 1); n <= last[k] {
				t.Fatalf("%s came behind row %d of its key", id, last[k])
			} else {
				last[k] = n
			}
		}
		if got, unsent := b.receiver.total(), b.count("select count(*) from outbox where sent_at is null"); got != rows || unsent != 0 {
			t.Errorf("%d requests, %d rows not marked", got, unsent)
		}
	})
}

// What a killed publisher had in flight goes out again, under the same id, and
// nothing else does.
func TestOutbox_WhenKilledAtAnyInstant_NothingIsLost(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		const kills, rows, concurrency = 10, 1500, 4
		b.insert(rows, "orders", func(i int) string { return fmt.Sprint(i % 100) })
		b.receiver.answers(func(string, string) int { time.Sleep(2 * time.Millisecond); return 200 })
		for range kills {
			pr := b.publish("--for", "1h")
			before := b.receiver.total()
			until(t, "it publishes", func() bool { return b.receiver.total() > before+rand.IntN(100) })
			pr.signal(syscall.SIGKILL)
			pr.ends(137)
			b.leasesEnd()
		}
		b.publish().ends(0)
		if n := b.count("select count(*) from outbox where sent_at is null"); n > 0 {
			t.Errorf("%d rows are not sent", n)
		}
		for i := range rows {
			if id := fmt.Sprintf("outbox-%d", i+1); b.receiver.got(id) == 0 {
				t.Errorf("%s never came", id)
			}
		}
		if twice := b.receiver.total() - rows; twice > kills*concurrency {
			t.Errorf("%d requests too many after %d kills", twice, kills)
		}
		t.Logf("%d repeats after %d kills", b.receiver.total()-rows, kills)
	})
}

func TestOutbox_WhenTerminated_FinishesAndGivesBack(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		b.insert(20, "orders", nil)
		release := make(chan struct{})
		b.receiver.answers(func(string, string) int { <-release; return 200 })
		pr := b.publish("--for", "1h")
		until(t, "four are in flight", func() bool { return b.receiver.total() == 4 })
		pr.signal(syscall.SIGTERM)
		until(t, "the others are given back", func() bool { return b.count("select count(*) from outbox where token is not null") == 4 })
		close(release)
		pr.ends(2)
		if n := b.count("select count(*) from outbox where sent_at is not null"); n != 4 || b.receiver.total() != 4 {
			t.Errorf("%d marked, %d requests, want 4", n, b.receiver.total())
		}
		b.publish().ends(0)
		if b.receiver.total() != 20 {
			t.Errorf("%d requests for 20 rows", b.receiver.total())
		}
	})
}

func TestOutbox_WhenPoisonIsAhead_TheRestGoesOutAndRetryFreesItsKey(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		var healed sync.Map
		b.receiver.answers(func(id, body string) int {
			if _, ok := healed.Load("all"); !ok && strings.Contains(body, "poison") {
				return 500
			}
			return 200
		})
		for range 100 {
			b.exec(`insert into outbox (topic, payload) values ('orders', '{"poison": true}')`)
		}
		b.exec(`insert into outbox (topic, key, payload) values ('orders', 'k', '{"poison": true}')`)
		b.insert(100, "orders", nil)
		b.insert(1, "orders", func(int) string { return "k" })
		b.publish("--retries", "2", "--backoff", "50ms", "-o", "table").ends(1).says("sent 100, failed 101, left 1, ended: empty")
		letters := "select count(*) from failed_jobs where resolved_at is null and kind = 'outbox' and attempts = 3 and certainty = 'in_doubt' and name = 'orders'"
		if n := b.count(letters); n != 101 {
			t.Fatalf("%d dead letters, want 101", n)
		}
		// Letters are numbered as rows failed, not as the rows are.
		letter := strconv.Itoa(b.count("select id from failed_jobs where event_id = 'outbox-101'"))
		b.start("failed", "retry", letter).ends(1) // in doubt
		healed.Store("all", true)
		b.start("failed", "retry", letter, "--in-doubt").ends(0)
		b.start("failed", "retry", letter, "--in-doubt").ends(1)
		b.publish("-o", "table").ends(0).says("sent 1, failed 0, left 0")
		key := "select count(*) from outbox where key = 'k' and sent_at is null"
		if n := b.count(key); n != 0 || b.count(letters) != 100 {
			t.Errorf("%d rows of the key are left, %d dead letters", n, b.count(letters))
		}
	})
}

// Rows that wait behind a failed one go out when it was resolved by hand, or
// with --skip-failed.
func TestOutbox_WhenAFailedRowIsResolved_ItsKeyFlows(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		b.receiver.answers(func(id, _ string) int {
			if id == "outbox-1" || id == "outbox-3" {
				return 404
			}
			return 200
		})
		b.insert(4, "orders", func(int) string { return "k" })
		b.publish("--retries", "0", "-o", "table").ends(1).says("sent 0, failed 1, left 3, ended: empty")
		b.publish("-o", "table").ends(0).says("sent 0, failed 0, left 3, ended: empty")
		b.start("failed", "resolve", "1").ends(0)
		b.publish("--retries", "0", "-o", "table").ends(1).says("sent 1, failed 1, left 1, ended: empty")
		b.publish("--skip-failed", "-o", "table").ends(0).says("sent 1, failed 0, left 0, ended: empty")
	})
}
