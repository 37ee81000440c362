package cmd

// The rules of oncectl's output:
//
//   - stdout is for answers, stderr for everything else. Nothing is printed
//     when all is well and nobody asked: cron mails every byte.
//   - A message is one line, begins with "oncectl: ", is in lower case and has
//     no stop; a second one, "oncectl: hint: …", says what to do.
//   - Lists are tables for people (-o table) or one JSON array (-o json) whose
//     names stay; times are RFC 3339 in UTC. On a terminal, the lines of a table
//     end at its edge; elsewhere they are whole.
//   - Ids and names in messages are quoted, so that none can forge a line.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	formatTable      outputFormat = "table"
	formatJSON       outputFormat = "json"
	formatPrometheus outputFormat = "prometheus"
)

// addFlag adds -o, for a table or JSON and what more there is.
func (f *outputFormat) addFlag(fs *pflag.FlagSet, more ...outputFormat) {
	*f = formatTable
	v := formatValue{f, append([]outputFormat{formatTable, formatJSON}, more...)}
	fs.VarP(v, "output", "o", "output `FORMAT`: "+v.names())
}

// formatValue is the flag's value.
type formatValue struct {
	f   *outputFormat
	all []outputFormat
}

func (v formatValue) String() string {
	if v.f == nil {
		return "" // a zero value, as pflag makes one
	}
	return string(*v.f)
}

func (v formatValue) Type() string { return "format" }

func (v formatValue) Set(s string) error {
	if !slices.Contains(v.all, outputFormat(s)) {
		return fmt.Errorf("it is %s", v.names())
	}
	*v.f = outputFormat(s)
	return nil
}

// names is "a, b or c".
func (v formatValue) names() string {
	text := string(v.all[0])
	for i, f := range v.all[1:] {
		sep := ", "
		if i == len(v.all)-2 {
			sep = " or "
		}
		text += sep + string(f)
	}
	return text
}

// column is a column of a table; the last one has no width.
type column struct {
	title string
	width int
}

// listing prints rows as they come, so that a million of them take no memory.
type listing struct {
	w       *bufio.Writer
	format  outputFormat
	columns []column
	rows    int
	width   int // of the terminal; 0: no limit
}

func newListing(w io.Writer, format outputFormat, columns []column) *listing {
	return &listing{w: bufio.NewWriter(w), format: format, columns: columns, width: terminalWidth(w)}
}

// terminalWidth is how many characters a line of w has room for; 0 if it is no
// terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// add prints one row: its cells in a table, or record as JSON.
func (l *listing) add(cells []string, record any) error {
	l.rows++
	if l.format == formatJSON {
		return l.addJSON(record)
	}
	if l.rows == 1 {
		titles := make([]string, len(l.columns))
		for i, c := range l.columns {
			titles[i] = c.title
		}
		l.line(titles)
	}
	return l.line(cells)
}

func (l *listing) line(cells []string) error {
	var b strings.Builder
	for i, cell := range cells {
		if i == len(cells)-1 {
			b.WriteString(cell)
			break
		}
		fmt.Fprintf(&b, "%-*s  ", l.columns[i].width, cell)
	}
	return l.text(b.String())
}

// text writes a line, cut to the terminal's width.
func (l *listing) text(line string) error {
	if l.width > 0 && utf8.RuneCountInString(line) > l.width {
		line = string([]rune(line)[:l.width-1]) + "…"
	}
	_, err := l.w.WriteString(line + "\n")
	return err
}

func (l *listing) addJSON(record any) error {
	b, err := json.Marshal(record)
	if err != nil {
		return err
	}
	before := ",\n "
	if l.rows == 1 {
		before = "[\n "
	}
	l.w.WriteString(before)
	_, err = l.w.Write(b)
	return err
}

// close ends the list and writes out what is left.
func (l *listing) close() error {
	if l.format == formatJSON {
		end := "\n]\n"
		if l.rows == 0 {
			end = "[]\n"
		}
		l.w.WriteString(end)
	}
	return l.w.Flush()
}

// formatTime is t in UTC to the second; a dash for none.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func formatID(id int64) string {
	if id == 0 {
		return "-"
	}
	return strconv.FormatInt(id, 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// counted is n of something.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

// orNil is null in JSON for a zero value.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// printRecord prints one thing: as a line for people, or as one JSON object.
func printRecord(w io.Writer, format outputFormat, record any, line func() string) error {
	if format == formatJSON {
		b, err := json.Marshal(record)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	_, err := fmt.Fprintln(w, line())
	return err
}

// firstLine is the first line of s, made printable.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return printable(line)
}

// shellWord is s as a word of a shell.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@+-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// printable replaces what could move a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (r < 0x20 || (r >= 0x7f && r <= 0x9f)) {
			return '\uFFFD'
		}
		return r
	}, s)
}
