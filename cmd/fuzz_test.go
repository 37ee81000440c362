package cmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/delivery"
)

// What is read from outside, which anybody may have written. ./scripts/test
// runs each of these for some seconds.

// wantShort checks what is said of bad input: one line, readable, and so short
// that it cannot repeat much of it.
func wantShort(t *testing.T, err error) {
	t.Helper()
	if s := err.Error(); len(s) > 400 || strings.ContainsAny(s, "\n\r\x00") || !utf8.ValidString(s) {
		t.Errorf("the error is %q", s)
	}
}

// A line that is taken is JSON, and its id and its body are what any reader of
// JSON finds in it.
func FuzzBatchLine(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a","payload":{"n": 1.50}}`, `{"id":"a","data":"x\u0000y","url":"http://there/","headers":{"X-A":"b"}}`, `{"id":"a"} {}`, `{"id":"a"}]`, `{"id":"a"}}`,
		`{"id":"\ud800"}`, `{"id":"\ud83d\ude00","payload":"\ud800"}`, "{\"id\":\"\xff\"}", "{\"id\":\"a\",\"data\":\"\xff\"}", `{"id":"a","data":"\udc00"}`, `{"id":17}`, `{"id":"a","url":7}`,
		`{"id":"a","headers":{"X":1}}`, `{"id":"a","headers":[]}`, `{"id":"a","payload":null}`, `{"id":null}`, `null`, `12345`, `[`, `{"id":"a","` + strings.Repeat("k", 500) + `":1}`, `{"id":"a","url":"http://u:p%zz@h/"}`,
		`{"id":"a","data":"x","payload":1}`, `{"id":" a "}`, `{"id":"a","headers":{"Content-Length":"1"}}`, `{"id":"a","url":null}`, "{\"id\":\"a\",\"headers\":{\"\xff\":\"b\"}}",
	} {
		f.Add([]byte(seed))
	}
	b := &batchRun{sender: &openSender{client: delivery.New(delivery.Options{}, delivery.NewGate(1))}, shared: messageOptions{url: "http://here/", method: http.MethodPost}, header: http.Header{"X-Shared": {"1"}}}
	f.Fuzz(func(t *testing.T, line []byte) {
		o, err := b.parse(line)
		if err != nil {
			wantShort(t, err)
			if !errors.Is(err, runner.ErrInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
			}
			return
		}
		var other map[string]any
		if err := json.Unmarshal(line, &other); err != nil {
			t.Fatalf("took %q, which is not JSON: %v", line, err)
		}
		if _, err := runner.ParseEventID(string(o.Message.ID)); err != nil {
			t.Errorf("%v", err)
		}
		if id := string(o.Message.ID); strings.ContainsRune(id, utf8.RuneError) && !saysReplacement(line) {
			t.Errorf("%q became the id %q", line, id)
		}
		if body := o.Message.Body; http.Header(o.Message.Header).Get("Content-Type") == formType && !saysReplacement(line) && bytes.ContainsRune(body, utf8.RuneError) {
			t.Errorf("%q became the body %q", line, body)
		}
		if !json.Valid(o.Request) || b.header.Get("X-Shared") != "1" || len(b.header) != 1 {
			t.Errorf("its request is %q, and the shared header now %v", o.Request, b.header)
		}
	})
}

// saysReplacement reports whether the line itself has U+FFFD, in either form.
func saysReplacement(line []byte) bool {
	return bytes.Contains(line, []byte("\uFFFD")) || bytes.Contains(bytes.ToLower(line), []byte(`\ufffd`))
}

// A line that is longer than any message costs the memory of none, and the next
// one is read as if it had not been there.
func TestReadLine_WhenALineIsTooLong_TheNextIsRead(t *testing.T) {
	endless := io.LimitReader(repeated('x'), maxBatchLine+1<<20)
	br := bufio.NewReader(io.MultiReader(strings.NewReader("first\n"), endless, strings.NewReader("\nlast")))
	for _, want := range []string{"first", "", "last"} {
		line, err := readLine(br)
		if string(line) != want || want == "" && !errors.Is(err, errLongLine) || want != "" && err != nil {
			t.Fatalf("readLine() = %.20q, %v, want %q", line, err, want)
		}
	}
	if _, err := readLine(br); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// repeated is an endless input of one byte.
type repeated byte

func (r repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// The ids of a stream are its lines up to the first bad one, however the input
// comes in.
func FuzzIDLines(f *testing.F) {
	for _, seed := range []string{"a\nb\n", "a\r\nb", "a\n\nb", "\xff", "a\x00\n", strings.Repeat("x", 1025) + "\nb", strings.Repeat("y\n", 2500), " a \n", "\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want []runner.EventID
		bad := false
		for line := range strings.Lines(text) {
			id, err := runner.ParseEventID(strings.TrimSuffix(line, "\n"))
			if bad = err != nil; bad {
				break
			}
			want = append(want, id)
		}
		for name, r := range map[string]io.Reader{"at once": strings.NewReader(text), "in pieces": iotest.OneByteReader(strings.NewReader(text))} {
			got, err := allIDs(r)
			if !slices.Equal(got, want) || (err != nil) != bad {
				t.Errorf("%s: %d ids and %v, want %d", name, len(got), err, len(want))
			}
			if err != nil {
				wantShort(t, err)
			}
		}
	})
}

func allIDs(r io.Reader) (ids []runner.EventID, err error) {
	chunks, ended := make(chan []runner.EventID), make(chan error, 1)
	go func() {
		defer close(chunks)
		ended <- readIDs(context.Background(), r, chunks)
	}()
	for chunk := range chunks {
		ids = append(ids, chunk...)
	}
	return ids, <-ended
}

// What is said of a headers file has nothing of it, since its lines are
// secrets; what was read, written again, is read as the same.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{"Authorization: Bearer abc\n", "# a comment\r\n\r\nX-A: 1\r\nx-a: 2", "  # another: one\n", "no colon", ": no name", "X-A:", "a b: c", "X:a\rb", "\ufeffX: y", "X: a: b", "X:\u00a0y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := http.Header{}
		if err := addHeaders(h, text); err != nil {
			if _, after, _ := strings.Cut(err.Error(), ": "); after != errHeader.Error() {
				t.Errorf("the error is %q", err)
			}
			return
		}
		var again strings.Builder
		for _, name := range slices.Sorted(maps.Keys(h)) {
			for _, value := range h[name] {
				again.WriteString(name + ": " + value + "\n")
			}
		}
		same := http.Header{}
		if err := addHeaders(same, again.String()); err != nil || !maps.EqualFunc(h, same, slices.Equal) {
			t.Errorf("%q became %v, and that %v, %v", text, h, same, err)
		}
	})
}

// Which store a URL means is said without any part that may be a password.
func FuzzStoreURL(f *testing.F) {
	for _, seed := range [][2]string{{"postgres://app:", "@db/app"}, {"", ""}, {"mysql://app:", "@db"}, {"host=db password=", ""}, {"sqlite:", ""}, {"sqlite://", "x"}, {"", "://x"}, {"pos tgres://", ""}, {"Postgres://", "@db"}, {strings.Repeat("a", 500) + "://", ""}} {
		f.Add(seed[0], seed[1])
	}
	const secret = "hu/sh" // which cannot be in a scheme, the only part that is shown
	f.Fuzz(func(t *testing.T, before, after string) {
		url := before + secret + after
		choice, err := parseStoreURL(url, "--database-url")
		var h hinted
		switch {
		case err == nil && choice.Postgres && choice.Conn != url, err == nil && !choice.Postgres && !strings.HasSuffix(url, choice.Path):
			t.Errorf("%q became %+v", url, choice)
		case err != nil:
			wantShort(t, err)
			if !errors.As(err, &h) || strings.Contains(err.Error()+h.hint, secret) {
				t.Errorf("%q: %v", url, err)
			}
		}
	})
}
