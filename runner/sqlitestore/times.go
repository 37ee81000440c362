package sqlitestore

import (
	"fmt"
	"time"
)

// now is SQLite's clock as the tables keep it. It is the same throughout one
// statement.
const now = `strftime('%Y-%m-%dT%H:%M:%fZ', 'now')`

// layout is how the tables keep times: it compares as it sorts.
const layout = "2006-01-02T15:04:05.000Z"

// later is now plus the modifier that is bound to the parameter. A null
// modifier gives null.
func later(param string) string {
	return `strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ` + param + `)`
}

// modifier is d as SQLite adds it to a time, in milliseconds; what is shorter
// than one counts as one.
func modifier(d time.Duration) string {
	ms := d.Milliseconds()
	if ms == 0 && d > 0 {
		ms = 1
	}
	return fmt.Sprintf("%+d.%03d seconds", ms/1000, abs(ms%1000))
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}

func formatTime(t time.Time) string { return t.UTC().Format(layout) }

// parseTime reads what the tables hold, by oncectl or by another program:
// SQLite's own functions leave out the T and the Z. What is no time is zero.
func parseTime(s string) time.Time {
	for _, l := range [...]string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999",
		"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999 -0700 MST", "2006-01-02"} {
		if t, err := time.Parse(l, s); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}
