package runner

import (
	"fmt"
	"unicode/utf8"
)

// MaxIDBytes is the greatest length of an event id or a lock name. It keeps
// the primary key well below the third of an 8 KiB page that a PostgreSQL
// B-tree entry may take (2704 bytes; PostgreSQL manual, "B-Tree Indexes").
const MaxIDBytes = 1024

// EventID names something that must have its side effect once. It comes from
// the event itself, is stable across retries, and is compared byte for byte.
type EventID string

// ParseEventID checks s against the rules of event ids: 1 to MaxIDBytes bytes
// of valid UTF-8 without control characters. Nothing is trimmed, folded or
// normalised. The error wraps ErrInvalid and never repeats a broken id raw.
func ParseEventID(s string) (EventID, error) {
	if err := checkName(s); err != nil {
		return "", fmt.Errorf("event id %s: %w", quoteShort(s), err)
	}
	return EventID(s), nil
}

// ParseLockName checks s against the rules of lock names, which are those of
// event ids.
func ParseLockName(s string) (string, error) {
	if err := checkName(s); err != nil {
		return "", fmt.Errorf("lock name %s: %w", quoteShort(s), err)
	}
	return s, nil
}

func checkName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: it is empty", ErrInvalid)
	case len(s) > MaxIDBytes:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrInvalid, len(s), MaxIDBytes)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: it is not valid UTF-8", ErrInvalid)
	}
	for i, r := range s {
		if isControl(r) {
			return fmt.Errorf("%w: it has the control character %U at byte %d", ErrInvalid, r, i)
		}
	}
	return nil
}

// isControl reports whether r is in Unicode's category Cc: C0, DEL and C1.
func isControl(r rune) bool {
	return r < 0x20 || (r >= 0x7f && r <= 0x9f)
}

// quoteShort quotes at most the first 40 bytes of s, so that one bad line does
// not fill a terminal.
func quoteShort(s string) string {
	const most = 40
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", s[:most])
}
