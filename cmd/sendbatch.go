package cmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

// maxBatchLine bounds a line of a batch: a body that is all escapes (\u0000)
// takes six bytes for one.
const maxBatchLine = 6*runner.MaxBodyBytes + 64<<10

// runBatch sends the messages on standard input.
func (o *sendOptions) runBatch(ctx context.Context, cmd *cobra.Command) error {
	for _, name := range []string{"id", "data", "json"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is for one message, not for --batch", name)
		}
	}
	header, err := parseHeaders(o.message.headers)
	if err != nil {
		return err
	}
	sender, err := o.http.open(ctx, o.env, o.store)
	if err != nil {
		return err
	}
	defer sender.Close()
	b := &batchRun{
		env: o.env, sender: sender, shared: o.message, header: header,
		idempotent: o.http.idempotent, noPayload: o.http.noPayload,
		results: json.NewEncoder(o.env.Out), progress: newProgress(o.env),
	}
	b.results.SetEscapeHTML(false)
	defer b.progress.Close()
	return b.run(ctx, o.http.concurrency)
}

// batchRun reads orders from standard input and writes results.
type batchRun struct {
	env        *Env
	sender     *openSender
	shared     messageOptions
	header     http.Header
	idempotent bool
	noPayload  bool

	mu       sync.Mutex // of what follows: lines and results come from two sides
	results  *json.Encoder
	progress *progress
	bad      int // lines that are no message
	faults   int // results that are errors
	undone   int // events not delivered, or in doubt
}

func (b *batchRun) run(ctx context.Context, concurrency int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// As many as may be in flight are read ahead, so that each round trip to the
	// store claims for all the room there is.
	orders := make(chan runner.SendOrder, concurrency)
	readErr := make(chan error, 1)
	// Not waited for after an interrupt: a read of standard input cannot be
	// ended, and the process ends with the command.
	go func() {
		defer close(orders)
		readErr <- b.read(ctx, orders)
	}()
	batch := &runner.Batch{
		Sender: b.sender.Sender, Concurrency: concurrency, Orders: orders, Stop: ctx.Done(), Emit: b.emit,
	}
	err := batch.Run(ctx)
	interrupted := ctx.Err() != nil
	if err == nil && !interrupted {
		err = <-readErr
	}
	switch {
	case err != nil:
		return err
	case interrupted:
		return errors.New("interrupted: what was not sent was not claimed; run the same batch again for the rest")
	case b.bad > 0 || b.faults > 0:
		return fmt.Errorf("%d lines are no message and %d events could not be handled", b.bad, b.faults)
	case b.undone > 0:
		fmt.Fprintf(b.env.Err, "oncectl: %d events were not delivered or are in doubt; see 'oncectl failed list'\n", b.undone)
		return errNo
	}
	return nil
}

// read sends the orders of standard input. A bad line is named and passed over.
func (b *batchRun) read(ctx context.Context, orders chan<- runner.SendOrder) error {
	br := bufio.NewReaderSize(b.env.In, 64<<10)
	for n := 1; ; n++ {
		line, err := readLine(br)
		if err != nil && !errors.Is(err, errLongLine) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading standard input: %w", err)
		}
		if err == nil && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var o runner.SendOrder
		if err == nil {
			o, err = b.parse(line)
		}
		if err != nil {
			if err := b.badLine(n, err); err != nil {
				return err
			}
			continue
		}
		select {
		case orders <- o:
		case <-ctx.Done():
			return nil
		}
	}
}

var errLongLine = fmt.Errorf("%w: the line is longer than any message", runner.ErrInvalid)

// readLine reads a line without its end. A line that is too long is read to
// its end and not kept.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := br.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxBatchLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || (len(line) == 0 && !long)):
			return nil, err
		case long:
			return nil, errLongLine
		}
		return bytes.TrimSuffix(line, []byte("\n")), nil
	}
}

// batchLine is a message of a batch.
type batchLine struct {
	ID      *exactText           `json:"id"`
	Payload json.RawMessage      `json:"payload"`
	Data    *exactText           `json:"data"`
	URL     exactText            `json:"url"`
	Headers map[string]exactText `json:"headers"`
}

// exactText is a JSON string that means the same to every reader of JSON.
type exactText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *exactText) UnmarshalJSON(b []byte) error {
	if b[0] != '"' && string(b) != "null" {
		return fmt.Errorf("%w: id, data, url and what headers say are strings", runner.ErrInvalid)
	}
	if err := runner.CheckJSONText(b, true); err != nil { // a body may have NUL
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// parse makes an order of a line. Errors wrap runner.ErrInvalid.
func (b *batchRun) parse(line []byte) (runner.SendOrder, error) {
	var l batchLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return runner.SendOrder{}, jsonFault(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return runner.SendOrder{}, fmt.Errorf("%w: there is more behind the object", runner.ErrInvalid)
	}
	switch {
	case l.ID == nil:
		return runner.SendOrder{}, fmt.Errorf("%w: it has no id", runner.ErrInvalid)
	case l.Payload != nil && l.Data != nil:
		return runner.SendOrder{}, fmt.Errorf("%w: payload and data are both the body: give one", runner.ErrInvalid)
	}
	id, err := runner.ParseEventID(string(*l.ID))
	if err != nil {
		return runner.SendOrder{}, err
	}
	m := runner.Message{ID: id, URL: firstNonEmpty(string(l.URL), b.shared.url), Method: b.shared.method, Idempotent: b.idempotent}
	if m.URL == "" {
		return runner.SendOrder{}, fmt.Errorf("%w: it has no url, and there is no --url", runner.ErrInvalid)
	}
	header := b.header.Clone()
	for name, value := range l.Headers {
		header.Set(name, string(value))
	}
	kind := ""
	switch {
	case l.Data != nil:
		m.Body, kind = []byte(*l.Data), formType
	case l.Payload != nil:
		m.Body, kind = l.Payload, jsonType
	}
	m.Header = withType(header, kind)
	if err := b.sender.client.Check(m); err != nil {
		return runner.SendOrder{}, err
	}
	return makeOrder(m, b.noPayload), nil
}

// jsonFault says what is wrong with a line, in short and without its values.
func jsonFault(err error) error {
	const most = 100
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	what := oneLine(err.Error())
	switch {
	case errors.Is(err, runner.ErrInvalid):
		return err
	case errors.As(err, &syntax):
		what = fmt.Sprintf("it is not JSON, at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		value, _, _ := strings.Cut(kind.Value, " ") // what follows is the number itself
		what = fmt.Sprintf("its %s cannot be a %s", kind.Field, value)
		if kind.Field == "" {
			what = fmt.Sprintf("it is no object, but a %s", value)
		}
	default:
		what = runner.Shorten(what, most)
	}
	return fmt.Errorf("%w: %s", runner.ErrInvalid, what)
}

// batchResult is a line of the results. The names are part of the promise.
type batchResult struct {
	ID       string `json:"id,omitempty"`
	Line     int    `json:"line,omitempty"`
	Outcome  string `json:"outcome"`
	Status   int    `json:"status"`
	Attempts int    `json:"attempts"`
	Error    string `json:"error,omitempty"`
}

func (b *batchRun) badLine(n int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad++
	fmt.Fprintf(b.env.Err, "oncectl: line %d: %s\n", n, oneLine(err.Error()))
	return b.results.Encode(batchResult{Line: n, Outcome: "refused", Error: oneLine(err.Error())})
}

// emit prints the result of an order.
func (b *batchRun) emit(r runner.SendResult) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.progress.Add()
	out := batchResult{
		ID: string(r.ID), Outcome: answerWord(r), Status: r.Delivery.Status,
		Attempts: r.Delivery.Attempts, Error: r.Delivery.LastError,
	}
	switch {
	case r.Err != nil:
		b.faults++
		out.Error = oneLine(r.Err.Error())
		fmt.Fprintf(b.env.Err, "oncectl: %s\n", out.Error)
	case r.Answer == runner.NotSent || r.Answer == runner.MaybeSent:
		b.undone++
		if r.Before != nil {
			out.Error = doubt(r)
		}
	}
	return b.results.Encode(out)
}

// answerWord names an answer in results.
func answerWord(r runner.SendResult) string {
	if r.Err != nil && r.Delivery.Attempts == 0 {
		return "refused"
	}
	switch r.Answer {
	case runner.Sent, runner.SentBefore:
		return string(runner.Delivered)
	case runner.BeingSent:
		return "being_sent"
	case runner.MaybeSent:
		return string(runner.InDoubt)
	case runner.GivenBack:
		return "given_back"
	}
	return string(runner.Failed)
}
