package broker

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/oncectl/oncectl/runner"
)

// endpoint answers one request with a status and something to be sent as JSON.
type endpoint func(w http.ResponseWriter, r *http.Request) (status int, answer any, err error)

// handle answers r. The answer is on its way when it returns, so that Close
// cuts none off.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		writeError(w, errGone)
		return
	}
	defer s.requests.Done()
	e, err := s.route(r)
	if err != nil {
		writeError(w, err)
		return
	}
	status, answer, err := e(w, r)
	switch {
	case err != nil:
		writeError(w, err)
	case answer != nil: // else it was written already
		write(w, status, answer)
	}
}

// route finds the endpoint of r. http.ServeMux would not do: it cleans paths,
// and an id may hold "//".
func (s *Server) route(r *http.Request) (endpoint, error) {
	name, rest, more := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	method := http.MethodPost
	if name == "run" {
		method = http.MethodGet
	}
	e, err := s.endpoint(name, rest, more)
	switch {
	case err != nil:
		return nil, err
	case r.Method != method:
		return nil, fmt.Errorf("%w: /%s takes %s", errMethod, name, method)
	case r.URL.RawQuery != "" && !(more && name == "claim"):
		return nil, fmt.Errorf("%w: /%s takes no query", runner.ErrInvalid, name)
	}
	return e, nil
}

func (s *Server) endpoint(name, rest string, more bool) (endpoint, error) {
	if more {
		return s.pathEndpoint(name, rest)
	}
	switch name {
	case "claim":
		return s.claim, nil
	case "done":
		return s.finish, nil
	case "release":
		return s.release, nil
	case "renew":
		return s.renew, nil
	case "lookup":
		return s.lookup, nil
	case "settle":
		return s.settle, nil
	case "turn":
		return s.turn, nil
	case "outbox":
		return s.addToOutbox, nil
	case "run":
		return s.run, nil
	case "slot":
		return s.slot, nil
	}
	return nil, fmt.Errorf("%w as /%s", errNoEndpoint, name)
}

// pathEndpoint finds the endpoints that name their subject in the path.
func (s *Server) pathEndpoint(name, rest string) (endpoint, error) {
	if name == "slot" {
		if id, ok := strings.CutSuffix(rest, "/done"); ok {
			return s.slotDone(id), nil
		}
		return nil, fmt.Errorf("%w as /slot/%s", errNoEndpoint, rest)
	}
	var forID func(runner.EventID) endpoint
	switch name {
	case "claim":
		forID = s.claimOne
	case "done":
		forID = s.finishOne
	case "release":
		forID = s.releaseOne
	default:
		return nil, fmt.Errorf("%w as /%s/…", errNoEndpoint, name)
	}
	text, err := url.PathUnescape(rest)
	if err != nil {
		return nil, fmt.Errorf("%w: the id in the path: %w", runner.ErrInvalid, err)
	}
	id, err := runner.ParseEventID(text)
	if err != nil {
		return nil, err
	}
	return forID(id), nil
}

// call does work under the run's lock once there is one. Where the lock is lost
// in the middle, it waits for the next and does the same again: nothing was
// written, or the repeat finds its own.
func (s *Server) call(r *http.Request, work func(pass) error) error {
	ctx, cancel := s.waiting(r)
	defer cancel()
	for {
		p, err := s.gate.enter(ctx)
		if err != nil {
			return err
		}
		err = work(p)
		if !errors.Is(err, runner.ErrLockLost) || !p.outdated(ctx) {
			return err
		}
	}
}

// parse reads r's body into v.
func (s *Server) parse(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	body, err := s.readBody(w, r, limit)
	if err != nil {
		return err
	}
	return decode(body, v)
}

func writeError(w http.ResponseWriter, err error) {
	status, body := encodeError(err)
	write(w, status, body)
}

// write sends the whole answer now. A caller who has gone is no matter.
func write(w http.ResponseWriter, status int, answer any) {
	body, err := encode(answer)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code":"internal","message":"the answer cannot be encoded"}`+"\n")
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return
	}
	_ = http.NewResponseController(w).Flush()
}
