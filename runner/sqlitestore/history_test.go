package sqlitestore

import (
	"path/filepath"
	"strings"
	"testing"
)

// Every table is searched by an index, or read along a partial one, which has
// only what is few.
func TestStatus_ReadsNoTableWhole(t *testing.T) {
	s := newStoreAt(t, filepath.Join(t.TempDir(), "x.db"))
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	partial := []string{"processed_events_unfinished", "processed_events_in_doubt", "failed_jobs_unresolved", "failed_jobs_event", "outbox_pending", "runs_succeeded"}
	for name, query := range map[string]string{"counts": countAll, "letters": countLetters, "locks": eachLock} {
		rows, err := s.db.Query("explain query plan " + query)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; rows.Next(); n++ {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(detail, "SCAN ") || strings.HasPrefix(detail, "SCAN k") || detail == "SCAN c" || detail == "SCAN o" {
				continue // keys, c and o are the query's own, and short
			}
			if !usesOne(detail, partial) {
				t.Errorf("%s: %s", name, detail)
			}
		}
		if err := rows.Close(); err != nil || n == 0 {
			t.Errorf("%s: the plan has %d lines, %v", name, n, err)
		}
	}
}

func usesOne(detail string, indexes []string) bool {
	for _, i := range indexes {
		if strings.Contains(detail, "INDEX "+i) {
			return true
		}
	}
	return false
}
