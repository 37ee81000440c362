package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/oncectl/oncectl/runner"
)

// exchange is one request and its answer, on a connection that nobody else has.
// The context's end closes the connection until stop is called.
type exchange struct {
	client *Client
	ctx    context.Context
	conn   *connection
	resp   *http.Response
	stop   func() bool
}

// finish reads the rest of the answer and gives the connection back. The error
// is the answer's, if that is one.
func (e *exchange) finish() ([]byte, error) {
	body, err := io.ReadAll(e.resp.Body)
	if err != nil {
		e.abandon()
		return nil, e.gone(err)
	}
	if e.stop() && !e.resp.Close {
		e.client.pool.put(e.conn)
	} else {
		e.conn.Close()
	}
	if e.resp.StatusCode != http.StatusOK {
		return nil, e.refusal(body)
	}
	return body, nil
}

// refusal is the error that an answer of another status than 200 brings.
func (e *exchange) refusal(body []byte) error {
	var b errorBody
	if err := json.Unmarshal(body, &b); err != nil || b.Message == "" {
		return fmt.Errorf("%w: the oncectl run above answered %s", runner.ErrUndecided, e.resp.Status)
	}
	return decodeError(b)
}

func (e *exchange) abandon() {
	e.stop()
	e.conn.Close()
}

// gone is the error of an answer that did not come.
func (e *exchange) gone(err error) error {
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	return &goneError{path: e.client.path, cause: err}
}
