package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/oncectl/oncectl/runner"
)

// What decode takes means the same to every reader of JSON: nothing was
// replaced, and what it says can be said again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"ids":["a","b"],"expires":"10m","take":["expired"]}`, `{"ids":["\ud83d\ude00","\\ud800"]}`, `{"ids":["\ud800"]}`, `{"ids":["\ud800\ud800"]}`,
		`{"ids":["\u0000"]}`, `{"ids":["\\u0000"]}`, `{"ids":["\`, `{"ids":["\u12"]}`, `null`, ` `, `{}{}`, `{"ids":null,"IDS":["x"]}`, "{\"ids\":[\"\xed\xa0\x80\"]}",
		`{"settle":{"settlements":[{"id":"a","outcome":"failed","dead_letter":{"payload":"AA==","last_error":"x","retry_at":"2026-01-01T00:00:00Z"}}]},"claim":{"ids":["ü"]}}`,
		`{"expires":"-1s"}`, `{"expires":"99999999999h"}`, `{"claim":{"targets":[null]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var c claimBody
		if decode(body, &c) == nil {
			sameAgain(t, c)
			if !utf8.Valid(body) || c.check() == nil && checkIDs(c.IDs) != nil {
				t.Errorf("took %q", body)
			}
			for _, id := range c.IDs {
				if strings.ContainsRune(string(id), utf8.RuneError) && !saysReplacement(body) || strings.Contains(string(id), "\x00") {
					t.Errorf("%q became %q", body, id)
				}
			}
		}
		var turn turnBody
		if decode(body, &turn) == nil {
			sameAgain(t, turn)
			_ = turn.Settle.check()
		}
		var ids idsBody
		_ = decode(body, &ids)
		var fb feedbackBody
		if decode(body, &fb) == nil {
			_, _ = fb.feedback()
		}
	})
}

// saysReplacement reports whether the body itself has U+FFFD, in either form.
func saysReplacement(body []byte) bool {
	return bytes.ContainsRune(body, utf8.RuneError) || bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`))
}

// sameAgain encodes v and decodes it.
func sameAgain[T any](t *testing.T, v T) {
	t.Helper()
	b, err := encode(v)
	if err != nil {
		return // a time beyond year 9999, and the like: the encoder says so
	}
	var again T
	if err := decode(b, &again); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	first, _ := json.Marshal(v)
	second, _ := json.Marshal(again)
	if !bytes.Equal(first, second) {
		t.Errorf("%s became %s", first, second)
	}
}

func TestDecode_WhenAnyIDIsSent_ItArrivesByteForByte(t *testing.T) {
	id := rapid.String().Filter(func(s string) bool { _, err := runner.ParseEventID(s); return err == nil })
	rapid.Check(t, func(t *rapid.T) {
		var want, got claimBody
		for _, s := range rapid.SliceOfN(id, 0, 5).Draw(t, "ids") {
			want.IDs = append(want.IDs, runner.EventID(s))
		}
		want.IDs = some(want.IDs)
		b, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := decode(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if diff := cmp.Diff(want.IDs, got.IDs); diff != "" {
			t.Error(diff)
		}
		// encoding/json of other languages escapes what is not ASCII.
		if err := decode([]byte(`{"ids":[`+asciiJSON(want.IDs)+`]}`), &got); err != nil || !cmp.Equal(want.IDs, got.IDs) {
			t.Errorf("%q came as %q: %v", want.IDs, got.IDs, err)
		}
	})
}

// asciiJSON writes every character as an escape, as a pair of them where that
// is needed.
func asciiJSON(ids []runner.EventID) string {
	var parts []string
	for _, id := range ids {
		parts = append(parts, `"`+escapeAll(string(id))+`"`)
	}
	return strings.Join(parts, ",")
}

func escapeAll(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u%04x`, u)
	}
	return b.String()
}
