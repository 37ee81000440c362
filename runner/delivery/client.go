// Package delivery delivers messages over HTTP: it decides after each try
// whether the receiver has it, surely has it not, or may have it, repeats only
// what is safe to repeat, and sends no faster than the receiver takes.
package delivery

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/oncectl/oncectl/runner"
)

// Client delivers messages. It is safe for concurrent use, and to be closed.
type Client struct {
	options   Options
	gate      runner.SendGate
	transport http.RoundTripper
	random    func() float64 // jitter, from [0, 1)
}

// New makes a client that asks gate before each request.
func New(o Options, gate runner.SendGate) *Client {
	o = o.withDefaults()
	return &Client{options: o, gate: gate, transport: newTransport(o), random: rand.Float64}
}

// Close closes the connections that are kept.
func (c *Client) Close() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Deliver sends m until its fate is final; see runner.Deliverer. When ctx ends,
// no further try is begun, and the one in flight has Options.Grace to finish.
// A message that Check refuses is Failed without a try.
func (c *Client) Deliver(ctx context.Context, m runner.Message) runner.DeliveryResult {
	if err := c.Check(m); err != nil {
		return runner.DeliveryResult{Outcome: runner.Failed, LastError: err.Error()}
	}
	u, err := parseURL(m.URL)
	if err != nil {
		return runner.DeliveryResult{Outcome: runner.Failed, LastError: err.Error()}
	}
	d := &delivery{client: c, message: m, url: u, host: hostOf(u)}
	b := newBackoff(c.options, &d.hint, c.random)
	return d.finish(retry.Do(ctx, b, d.try))
}

// delivery is the state of one message on its way. go-retry keeps only the
// last error, so what earlier tries told is kept here.
type delivery struct {
	client  *Client
	message runner.Message
	url     *url.URL
	host    string

	hint   hint
	result runner.DeliveryResult
	// doubt says that some try may have been processed: no later answer takes
	// that back, except success.
	doubt     bool
	lastDoubt bool // it was the last try
	// seen is the host's count of deliveries at the last refusal, or before
	// the first try.
	seen uint64
}

var (
	errAgain = errors.New("worth another try")
	errFinal = errors.New("no use to try again")
)

// try is one turn of the loop: wait for the gate, send, remember.
func (d *delivery) try(ctx context.Context) error {
	permit, err := d.client.gate.Acquire(ctx, d.host, d.client.options.MaxWait)
	if err != nil {
		return err
	}
	if d.result.Attempts == 0 {
		d.seen = permit.Delivered()
	}
	d.result.Attempts++
	t := d.client.try(ctx, d.message, d.url, d.host)
	d.note(t, permit.Done(t.feedback()))
	switch {
	case t.verdict == delivered:
		return nil
	case t.verdict.again(d.message.Idempotent):
		return retry.RetryableError(errAgain)
	}
	return errFinal
}

// note remembers what a try told. Count is how much the host has delivered by
// now, to anyone.
func (d *delivery) note(t tried, count uint64) {
	d.lastDoubt = t.verdict == doubtful
	d.doubt = d.doubt || d.lastDoubt
	d.hint = hint{after: t.after}
	if t.status == http.StatusTooManyRequests {
		d.hint.free = count > d.seen
		d.seen = count
	}
	d.result.Status = t.status
	d.result.LastError = t.text
	d.result.RetryAt = time.Time{}
	if t.after >= 0 {
		d.result.RetryAt = time.Now().Add(t.after)
	}
}

// finish turns the loop's end into the result.
func (d *delivery) finish(err error) runner.DeliveryResult {
	r := d.result
	if err == nil {
		r.Outcome, r.LastError, r.RetryAt = runner.Delivered, "", time.Time{}
		return r
	}
	r.Outcome = runner.Failed
	if d.doubt {
		r.Outcome = runner.InDoubt
	}
	var held *runner.HeldError
	switch {
	case errors.As(err, &held):
		r.LastError, r.RetryAt = join(r.LastError, held.Error()), held.Until
	case errors.Is(err, errAgain) && d.hint.after > d.client.options.MaxWait:
		r.LastError = join(r.LastError, "it wants no request before "+r.RetryAt.UTC().Format(time.RFC3339))
	case !errors.Is(err, errAgain) && !errors.Is(err, errFinal):
		r.Interrupted = true
		r.LastError = join(r.LastError, "interrupted before the next try")
	}
	if d.doubt && !d.lastDoubt {
		r.LastError = "an earlier try may have been processed; the last: " + r.LastError
	}
	return r
}

// join puts two sentences on one line.
func join(first, second string) string {
	return strings.Join(slices.DeleteFunc([]string{first, second}, func(s string) bool { return s == "" }), "; ")
}
