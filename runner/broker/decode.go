package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/oncectl/oncectl/runner"
)

const (
	// maxBody holds 10,000 ids of 1024 bytes that all have to be escaped, with
	// hashes and targets: the largest batch that 'oncectl claim -' makes.
	maxBody = 32 << 20
	// maxSettle also holds dead letters with payloads in base64, 14 MB each.
	maxSettle = 64 << 20
)

// readBody reads r's body to its end, up to limit bytes. Close does not wait for
// a body that does not come.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", errTooLarge, r.ContentLength, limit)
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	stop := context.AfterFunc(s.closing, func() { _ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) })
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case !stop():
		return nil, errGone
	case errors.As(err, &large):
		return nil, fmt.Errorf("%w: the limit is %d bytes", errTooLarge, limit)
	case err != nil:
		return nil, fmt.Errorf("reading the body: %w: %w", runner.ErrInvalid, err)
	}
	return buf.Bytes(), nil
}

// decode reads the one JSON value of body into v. Fields that v does not have
// are refused, and so is text that encoding/json would silently change: two
// broken ids could become the same one.
func decode(body []byte, v any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return fmt.Errorf("%w: the body is empty, and JSON is wanted", runner.ErrInvalid)
	}
	if err := checkJSONText(body); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: the body: %w", runner.ErrInvalid, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: the body goes on behind its JSON value", runner.ErrInvalid)
	}
	return nil
}

// checkJSONText refuses what encoding/json replaces by U+FFFD (invalid UTF-8,
// halves of surrogate pairs), and NUL, which no store's text can hold. Within
// valid JSON a backslash stands in strings only.
func checkJSONText(b []byte) error {
	if !utf8.Valid(b) {
		return fmt.Errorf("%w: the body is not valid UTF-8", runner.ErrInvalid)
	}
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return nil
		}
		if b[i+1] != 'u' {
			b = b[i+2:]
			continue
		}
		u, ok := escaped(b[i:])
		if !ok {
			return fmt.Errorf("%w: the body has a broken escape", runner.ErrInvalid)
		}
		b = b[i+6:]
		switch {
		case u == 0:
			return fmt.Errorf("%w: the body has the control character U+0000", runner.ErrInvalid)
		case u >= 0xD800 && u < 0xDC00:
			low, ok := escaped(b)
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return fmt.Errorf("%w: the body has half a surrogate pair, which is no character", runner.ErrInvalid)
			}
			b = b[6:]
		case u >= 0xDC00 && u < 0xE000:
			return fmt.Errorf("%w: the body has half a surrogate pair, which is no character", runner.ErrInvalid)
		}
	}
}

// escaped is the code unit of the \uXXXX that b begins with.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	u, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(u), err == nil
}

// encode is v as JSON, with the characters <, > and & as they are.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return buf.Bytes(), nil
}
