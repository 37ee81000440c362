package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

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
	if err := runner.CheckJSONText(body, false); err != nil {
		return fmt.Errorf("the body: %w", err)
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
