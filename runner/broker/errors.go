package broker

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/oncectl/oncectl/runner"
)

var (
	// errGone answers what is still waiting when the run ends.
	errGone = fmt.Errorf("the oncectl run above is ending: %w", runner.ErrUnavailable)
	// errUnsupported says that the store behind the run cannot do that.
	errUnsupported = errors.New("the run above cannot do that")
	errNoEndpoint  = errors.New("there is no such request")
	errNoSlot      = errors.New("there is no such slot")
	errMethod      = errors.New("the method is wrong")
	errTooLarge    = errors.New("the body is too large")
)

const (
	codeHeld     = "held"
	codeInternal = "internal"
	codeConflict = "conflict" // the answer no, where the status is the answer
)

// kind is one sort of error on the wire.
type kind struct {
	code     string
	status   int
	sentinel error // what the client's error is
	match    error // what the server's error is, if that differs
}

// kinds returns the table of errors. Where an error is several of them, the
// first counts. No status is 409, which is the answer "already claimed" alone.
func kinds() []kind {
	return []kind{
		{code: "gone", status: http.StatusServiceUnavailable, sentinel: runner.ErrUnavailable, match: errGone},
		{code: "fenced", status: http.StatusForbidden, sentinel: runner.ErrFenced},
		{code: "lock_lost", status: http.StatusForbidden, sentinel: runner.ErrLockLost},
		{code: "undecided", status: http.StatusGatewayTimeout, sentinel: runner.ErrUndecided},
		{code: "unavailable", status: http.StatusServiceUnavailable, sentinel: runner.ErrUnavailable},
		{code: "refused", status: http.StatusBadGateway, sentinel: runner.ErrRefused},
		{code: "other_payload", status: http.StatusUnprocessableEntity, sentinel: runner.ErrOtherPayload},
		{code: "busy", status: http.StatusLocked, sentinel: runner.ErrBusy},
		{code: "done", status: http.StatusGone, sentinel: runner.ErrDone},
		{code: "no_dead_letter", status: http.StatusNotFound, sentinel: runner.ErrNoDeadLetter},
		{code: "not_executable", status: http.StatusUnprocessableEntity, sentinel: runner.ErrNotExecutable},
		{code: "command_not_found", status: http.StatusUnprocessableEntity, sentinel: runner.ErrNotFound},
		{code: "unsupported", status: http.StatusNotImplemented, sentinel: errUnsupported},
		{code: "no_endpoint", status: http.StatusNotFound, sentinel: errNoEndpoint},
		{code: "no_slot", status: http.StatusNotFound, sentinel: errNoSlot},
		{code: "method", status: http.StatusMethodNotAllowed, sentinel: errMethod},
		{code: "too_large", status: http.StatusRequestEntityTooLarge, sentinel: errTooLarge},
		{code: "invalid", status: http.StatusBadRequest, sentinel: runner.ErrInvalid},
	}
}

// errorBody is an error on the wire.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Host and Until are those of a HeldError.
	Host  string    `json:"host,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// encodeError is err with its HTTP status.
func encodeError(err error) (int, errorBody) {
	var held *runner.HeldError
	if errors.As(err, &held) {
		return http.StatusTooManyRequests, errorBody{Code: codeHeld, Message: message(err), Host: held.Host, Until: held.Until}
	}
	for _, k := range kinds() {
		match := k.match
		if match == nil {
			match = k.sentinel
		}
		if errors.Is(err, match) {
			return k.status, errorBody{Code: k.code, Message: message(err)}
		}
	}
	return http.StatusInternalServerError, errorBody{Code: codeInternal, Message: message(err)}
}

// maxMessage has room for an event id, with words around it. What a job sent, a
// path of any length among it, is not sent back whole.
const maxMessage = 2000

func message(err error) string { return runner.Shorten(err.Error(), maxMessage) }

// decodeError is the error that b stands for, under the same sentinel.
func decodeError(b errorBody) error {
	if b.Code == codeHeld {
		return &runner.HeldError{Host: b.Host, Until: b.Until}
	}
	for _, k := range kinds() {
		if k.code == b.Code {
			return &remoteError{message: b.Message, sentinel: k.sentinel}
		}
	}
	return &remoteError{message: b.Message}
}

// remoteError is an error of the run above, in its words.
type remoteError struct {
	message  string
	sentinel error // nil: one that nobody decides on
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.sentinel }

// goneError says that the socket does not answer. There is nothing to fall back
// to: a claim by another way would not be fenced.
type goneError struct {
	path  string
	cause error
}

func (e *goneError) Error() string {
	return fmt.Sprintf("the oncectl run above is gone: its socket %s does not answer (%v)", e.path, e.cause)
}

func (e *goneError) Unwrap() []error { return []error{runner.ErrUnavailable, e.cause} }
