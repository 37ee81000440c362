package report

import (
	"bufio"
	"fmt"
	"html"
	"strings"
	"time"
	"unicode"
)

// markup is text that is HTML already. html/template would do the same with
// more checks, and make the program 2.5 MB larger and its start slower.
type markup string

// writer writes HTML. Its errors are those of the bufio.Writer, at Flush.
type writer struct{ *bufio.Writer }

// put writes a format that is HTML; whatever goes into it is escaped.
func (w writer) put(format string, args ...any) {
	for i, arg := range args {
		switch v := arg.(type) {
		case markup, int, int64, float64:
		case time.Time:
			args[i] = instant(v)
		default:
			args[i] = escape(fmt.Sprint(v))
		}
	}
	fmt.Fprintf(w, format, args...)
}

// escape makes s fit for text and for quoted attributes. What HTML cannot hold,
// and what would break a line, is replaced.
func escape(s string) markup {
	return markup(html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))))
}

// stamp is t as everywhere: RFC 3339, in UTC; a dash for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.RFC3339)
}

// instant is t for people and machines.
func instant(t time.Time) markup {
	if t.IsZero() {
		return "–"
	}
	return markup(`<time datetime="` + stamp(t) + `">` + stamp(t) + `</time>`)
}

// name marks a text that somebody else chose: it may be of any length, and
// written in any direction, without that spreading to what stands beside it.
func name(s string) markup {
	if s == "" {
		return "–"
	}
	return `<bdi class="n">` + escape(s) + `</bdi>`
}

// isolated is such a text where there can be no elements.
func isolated(s string) string { return "\u2068" + s + "\u2069" }

// cut is the beginning of a text that is too long.
func cut(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
