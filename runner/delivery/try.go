package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// tried is what one try came to.
type tried struct {
	verdict verdict
	status  int           // 0: no answer
	after   time.Duration // Retry-After; negative: none
	text    string        // why it is not delivered, for a person
}

// feedback is what the try tells the host's pace. A 429 always is a refusal;
// another status that is repeated only if it says when to come back, as 503
// does when it means load.
func (t tried) feedback() runner.Feedback {
	f := runner.Feedback{RetryAfter: t.after}
	switch {
	case t.status == http.StatusTooManyRequests, t.verdict == refused && t.after >= 0:
		f.Answer = runner.AnswerRefused
	case t.verdict == delivered:
		f.Answer = runner.AnswerDelivered
	case t.status != 0:
		f.Answer = runner.AnswerOther
	}
	return f
}

// staleTries bounds how many reused connections one try takes that turn out to
// be closed before anything was written.
const staleTries = 5

// try sends m once. A kept connection that the server has closed meanwhile,
// with nothing written to it, is no try: the next one is taken at once.
func (c *Client) try(ctx context.Context, m runner.Message, u *url.URL, host string) tried {
	ctx, cancel := c.tryContext(ctx)
	defer cancel()
	for n := 1; ; n++ {
		t, stale := c.attempt(ctx, m, u, host)
		if !stale || n == staleTries || ctx.Err() != nil {
			return t
		}
	}
}

// tryContext bounds one try by the time limit. When parent ends, the try has
// the grace to be finished.
func (c *Client) tryContext(parent context.Context) (context.Context, context.CancelFunc) {
	limit := c.options.Timeout
	cause := fmt.Errorf("not finished within %s", limit)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(parent), limit, cause)
	ctx, interrupt := context.WithCancelCause(ctx)
	stop := context.AfterFunc(parent, func() {
		grace := time.NewTimer(c.options.Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			interrupt(errors.New("interrupted"))
		case <-ctx.Done():
		}
	})
	return ctx, func() { stop(); interrupt(nil); cancel() }
}

// attempt makes one request on one connection. Stale says that the connection
// was a kept one and nothing was written to it.
//
// net/http repeats a request of its own accord when a kept connection fails:
// those without a body if Idempotency-Key is set or the method is safe, and
// all of which nothing was written. A repeat shows as a second connection for
// the same request, which the watch seals before a byte is written.
func (c *Client) attempt(ctx context.Context, m runner.Message, u *url.URL, host string) (t tried, stale bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watch{cancel: cancel}
	trace := &httptrace.ClientTrace{GotConn: w.gotConn}
	req := c.newRequest(httptrace.WithClientTrace(ctx, trace), m, u, time.Now())
	res, err := c.transport.RoundTrip(req)
	if err != nil {
		if w.wrote() {
			return tried{verdict: doubtful, after: noRetryAfter, text: unansweredError(host, err)}, false
		}
		return tried{verdict: unsent, after: noRetryAfter, text: unsentError(host, err)}, w.reused
	}
	defer res.Body.Close()
	return c.judge(res, host, cancel), false
}

// drainTime bounds how long the rest of an answer that is no success is read,
// for the sake of using its connection again.
const drainTime = time.Second

// judge reads the answer to its end or to the limit. A success that breaks off
// is in doubt: its header may have been sent before the work was done.
func (c *Client) judge(res *http.Response, host string, cancel context.CancelCauseFunc) tried {
	t := tried{
		verdict: classifyStatus(res.StatusCode, c.options.RetryOn),
		status:  res.StatusCode,
		after:   retryAfter(res.Header, time.Now()),
	}
	if t.verdict != delivered {
		t.text = statusError(host, res, t.verdict)
		drain := time.AfterFunc(drainTime, func() { cancel(nil) })
		defer drain.Stop()
		_ = readAnswer(res) // the status has decided
		return t
	}
	if err := readAnswer(res); err != nil {
		t.verdict = doubtful
		t.text = fmt.Sprintf("%s answered %d, but the answer broke off: %s: it may have been processed",
			host, res.StatusCode, oneLine(err.Error()))
	}
	return t
}

// readAnswer reads up to answerLimit; what is longer is cut, and its
// connection closed with the body.
func readAnswer(res *http.Response) error {
	_, err := io.CopyN(io.Discard, res.Body, answerLimit)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// errRepeat ends a repeat by net/http. It is what the try reports, in place of
// the error that led to the repeat.
var errRepeat = errors.New("the connection was closed")

// watch follows the connection of one request. Its methods are called by the
// goroutine of RoundTrip only.
type watch struct {
	cancel context.CancelCauseFunc
	got    bool
	conn   *countedConn // nil with got: of an unknown kind
	before int64        // what was written before this request
	reused bool
}

func (w *watch) gotConn(info httptrace.GotConnInfo) {
	conn, _ := counted(info.Conn)
	if w.got {
		if conn != nil {
			conn.seal()
		}
		info.Conn.Close()
		w.cancel(errRepeat)
		return
	}
	w.got, w.conn, w.reused = true, conn, info.Reused
	if conn != nil {
		w.before = conn.written.Load()
	}
}

// wrote reports whether any byte of the request may have been written, and
// sees to it that none is from now on.
func (w *watch) wrote() bool {
	if !w.got {
		return false
	}
	return w.conn == nil || w.conn.seal() > w.before
}
