package sqlitestore

import (
	"math"
	"strings"
	"testing"
)

// What was sent stays in the table for a while; a look goes by the indexes of
// what was not.
func TestOutbox_WhenALookIsPlanned_ItReadsTheIndexesOfUnsentRows(t *testing.T) {
	path := freshPath(t)
	if _, err := open(t, Config{Path: path}).ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := program(t, path)
	for query, args := range map[string][]any{
		unkeyedRows: {"", int64(math.MinInt64), 100},
		runOf:       {"", "key", false, 16},
		"select exists (select 1 from outbox o where o.sent_at is null and " + takeable + ")": {""},
	} {
		rows, err := db.Query("explain query plan "+query, args...)
		if err != nil {
			t.Fatal(err)
		}
		var plan strings.Builder
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			plan.WriteString(detail + "\n")
		}
		rows.Close()
		if p := plan.String(); !strings.Contains(p, "USING INDEX outbox_") && !strings.Contains(p, "USING COVERING INDEX outbox_") ||
			strings.Contains(p, "TEMP B-TREE") {
			t.Errorf("%s\n%s", query, p)
		}
	}
}
