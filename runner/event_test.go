package runner

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestParseEventID_WhenRulesAreKept_KeepsTheBytes(t *testing.T) {
	for _, s := range []string{
		"a", "invoice/4711", " ", " a ", "A", "é", "e\u0301", "1", "1.0", "0x1", "null", "-", "--help",
		"%_\\", "'; drop table x; --", "\u00a0", "\u2028", "日本語", strings.Repeat("a", 1024), strings.Repeat("é", 512),
	} {
		id, err := ParseEventID(s)
		if err != nil || string(id) != s {
			t.Errorf("ParseEventID(%q) = %q, %v", s, id, err)
		}
	}
}

func TestParseEventID_WhenARuleIsBroken_SaysWhich(t *testing.T) {
	for s, want := range map[string]string{
		"":                        "empty",
		strings.Repeat("a", 1025): "1025 bytes",
		strings.Repeat("é", 513):  "1026 bytes",
		"a\x00b":                  "U+0000 at byte 1",
		"a\tb":                    "U+0009",
		"a\nb":                    "U+000A",
		"a\x7fb":                  "U+007F",
		"a\u0085b":                "U+0085",
		"a\xff":                   "UTF-8",
		"\xed\xa0\x80":            "UTF-8", // a surrogate
	} {
		_, err := ParseEventID(s)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseEventID(%q): %v, want %q", s, err, want)
		}
	}
}

// An id is taken byte for byte or refused, and refused only for a rule.
func FuzzParseEventID(f *testing.F) {
	for _, s := range []string{"invoice/4711", "a\x00b", "", "\u0085", "\xed\xa0\x80", "\u200b", strings.Repeat("é", 512)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseEventID(s)
		keeps := s != "" && len(s) <= MaxIDBytes && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
		if keeps != (err == nil) || err == nil && string(id) != s {
			t.Fatalf("%q became %q, %v", s, id, err)
		}
		if err != nil && (!errors.Is(err, ErrInvalid) || !utf8.ValidString(err.Error()) || len(err.Error()) > 400) {
			t.Fatalf("%q: %v", s, err)
		}
	})
}

// The mapping is frozen: two versions that disagree would both run.
func TestLockKey_WhenAsked_IsFrozen(t *testing.T) {
	for _, v := range []struct {
		schema, name string
		want         int64
	}{
		{"oncectl", "nightly-digest", -3704984420928382939},
		{"oncectl", "a", 3637429358665497158},
		{"other", "nightly-digest", 6803405509824390201},
	} {
		if got := LockKey(v.schema, v.name); got != v.want {
			t.Errorf("LockKey(%q, %q) = %d, want %d", v.schema, v.name, got, v.want)
		}
	}
}

func TestNewToken_WhenCalled_IsAVersion4UUID(t *testing.T) {
	seen := map[Token]bool{}
	for range 1000 {
		tok := NewToken()
		if len(tok) != 36 || tok[14] != '4' || !strings.ContainsRune("89ab", rune(tok[19])) || seen[tok] {
			t.Fatalf("token %q", tok)
		}
		seen[tok] = true
	}
}

func TestSplayDelay_WhenCalledTwice_IsTheSamePartOfTheRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host, lock := rapid.String().Draw(t, "host"), rapid.String().Draw(t, "lock")
		d := SplayDelay(60e9, host, lock)
		if d < 0 || d >= 60e9 || d != SplayDelay(60e9, host, lock) {
			t.Fatalf("delay %v", d)
		}
	})
}

func TestSplayDelay_WhenThereAreManyHosts_SpreadsThem(t *testing.T) {
	var quarters [4]int
	for i := range 400 {
		quarters[SplayDelay(60e9, "web-"+string(rune('a'+i%26))+string(rune('0'+i/26)), "nightly")/15e9]++
	}
	for q, n := range quarters {
		if n < 60 || n > 140 {
			t.Errorf("quarter %d has %d of 400 hosts", q, n)
		}
	}
}
