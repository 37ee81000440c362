package pgstore

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
	"github.com/oncectl/oncectl/sqlschema"
)

// leaseStatement is the statement of a lease as it is sent.
func leaseStatement(s *Store, limit int) statement {
	return statement{s.sql(leaseOutbox), []any{
		string(runner.NewToken()), limit, "", time.Hour.Microseconds(), false, runner.OutboxCursor{}.AfterID(), nil,
		sqlschema.Version, runner.OutboxRunLength,
	}}
}

// explain runs the statement and returns its plan and the pages it touched.
func explain(t *testing.T, s *Store, st statement) (plan string, pages int) {
	t.Helper()
	st.sql = "explain (analyze, buffers, timing off, summary off) " + st.sql
	results, err := s.exec(t.Context(), 0, statement{sql: planner}, st)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range results[1] {
		b.WriteString(r.text(0) + "\n")
	}
	plan = b.String()
	// The first line of buffers is that of the whole statement.
	line := regexp.MustCompile(`Buffers: shared[^\n]*`).FindString(plan)
	for _, n := range regexp.MustCompile(`(?:hit|read)=(\d+)`).FindAllStringSubmatch(line, -1) {
		k, _ := strconv.Atoi(n[1])
		pages += k
	}
	return plan, pages
}

// What was sent stays in the table for a while. A look must not read it, with
// statistics and without.
func TestOutbox_WhenAMillionRowsAreSent_ALookReadsNoMoreThanItNeeds(t *testing.T) {
	url, schema := pgtest.Schema(t)
	s := open(t, url, schema)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url,
		fmt.Sprintf(`insert into %s.outbox (topic, key, payload, sent_at) select 't', case when g %% 2 = 0 then 'key ' || g %% 50 end, '{}', now()
			from generate_series(1, 1000000) g`, schema),
		fmt.Sprintf(`insert into %s.outbox (topic, key, payload) select 't', case when g %% 2 = 0 then 'key ' || g %% 50 end, '{}'
			from generate_series(1, 100000) g`, schema))
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			pgtest.Exec(t, url, fmt.Sprintf("analyze %s.outbox", schema))
		}
		plan, pages := explain(t, s, leaseStatement(s, 100))
		if strings.Contains(plan, "Seq Scan on outbox") || strings.Contains(plan, "Bitmap Heap Scan on outbox") ||
			!strings.Contains(plan, "Index Scan using outbox_keys") && !strings.Contains(plan, "Index Only Scan using outbox_keys") {
			t.Errorf("analyzed: %v: it reads the table:\n%s", analyzed, plan)
		}
		// To lease a hundred rows takes some fifteen pages a row: they are found,
		// locked and updated with five indexes.
		if pages == 0 || pages > 4000 {
			t.Errorf("analyzed: %v: it touches %d pages:\n%s", analyzed, pages, plan)
		}
		t.Logf("%d pages", pages)
	}
}

// A mark finds its rows by their ids, also where no statistics say how many
// others wait: one that read all that waits would make draining quadratic.
func TestOutbox_WhenManyRowsWait_AMarkReadsNoMoreThanItsOwn(t *testing.T) {
	url, schema := pgtest.Schema(t)
	s := open(t, url, schema)
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What autovacuum learns about a table is not to be waited for.
	pgtest.Exec(t, url,
		fmt.Sprintf(`alter table %s.outbox set (autovacuum_enabled = off)`, schema),
		fmt.Sprintf(`insert into %s.outbox (topic, key, payload) select 't', 'key ' || g %% 50, '{}' from generate_series(1, 50000) g`, schema))
	token := runner.NewToken()
	rows, _, err := s.Lease(t.Context(), runner.OutboxLease{Token: token, Limit: 100, For: time.Minute})
	if err != nil || len(rows) != 100 {
		t.Fatalf("Lease() = %d rows, %v", len(rows), err)
	}
	for name, verdict := range map[string]runner.OutboxVerdict{"back": runner.OutboxBack, "sent": runner.OutboxSent} {
		var marks []runner.OutboxMark
		for _, r := range rows[:50] {
			marks = append(marks, runner.OutboxMark{ID: r.ID, Verdict: verdict})
		}
		rows = rows[50:]
		stmts, err := s.markStatements(token, marks)
		if err != nil {
			t.Fatal(err)
		}
		plan, pages := explain(t, s, stmts[1])
		t.Logf("%s: %d pages", name, pages)
		if pages == 0 || pages > 50*40 || !strings.Contains(plan, "actual rows=50") {
			t.Errorf("%s: it touches %d pages for 50 rows:\n%s", name, pages, plan)
		}
	}
}
