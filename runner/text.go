package runner

import "strings"

// KeptText is s as stores keep what people read: PostgreSQL's text takes
// neither NUL nor invalid UTF-8, and an outcome must not be lost for the sake
// of the words beside it.
func KeptText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Shorten is the beginning of a text of more than most bytes, with a mark that
// it goes on; others stay whole.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
