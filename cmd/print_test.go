package cmd

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestListing_WhenTheTerminalIsNarrow_LinesEndAtItsEdge(t *testing.T) {
	var b bytes.Buffer
	out := newListing(&b, formatTable, []column{{"NAME", 10}, {"ERROR", 0}})
	out.width = 20
	for _, cells := range [][]string{{"é", strings.Repeat("ü", 50)}, {"exact", "12345678"}} {
		if err := out.add(cells, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.close(); err != nil {
		t.Fatal(err)
	}
	want := "NAME        ERROR\né           üüüüüüü…\nexact       12345678\n"
	if b.String() != want || !utf8.ValidString(b.String()) {
		t.Errorf("the table is\n%swant\n%s", b.String(), want)
	}
}

// Where the output is no terminal, nothing is cut.
func TestListing_WhenThereIsNoTerminal_LinesAreWhole(t *testing.T) {
	var b bytes.Buffer
	out := newListing(&b, formatTable, []column{{"NAME", 0}})
	long := strings.Repeat("x", 5000)
	if err := out.add([]string{long}, nil); err != nil {
		t.Fatal(err)
	}
	if err := out.close(); err != nil || b.String() != "NAME\n"+long+"\n" {
		t.Errorf("the table is %q, %v", b.String(), err)
	}
}
