package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/outbox"
)

// retryOutbox sends a row of the outbox again that has failed. One that was
// published by a command is put back instead: commands are not run from here.
func (o *failedRetryOptions) retryOutbox(ctx context.Context, s *openSender, d runner.DeadLetter, header http.Header) error {
	box := s.store.(outboxRetryStore) // every store is; only a broker is not
	row, err := o.outboxRow(d)
	if err != nil {
		return o.cannot(d, err)
	}
	var r sentRequest
	if len(d.Request) > 0 && json.Unmarshal(d.Request, &r) != nil {
		return o.cannot(d, errors.New("its request cannot be read"))
	}
	url := firstNonEmpty(o.url, r.URL)
	if url == "" {
		if err := box.PutBack(ctx, row); err != nil {
			return o.outboxFault(d, err)
		}
		fmt.Fprintf(o.env.Err, "oncectl: dead letter %d: %s is back in the outbox, for 'oncectl outbox publish'\n", d.ID, d.EventID)
		return nil
	}
	m := runner.Message{
		ID: d.EventID, URL: url, Method: r.Method, Header: withType(header, firstNonEmpty(r.ContentType, jsonType)),
	}
	if err := s.client.Check(m); err != nil {
		return fmt.Errorf("dead letter %d: %w", d.ID, err)
	}
	retry := &outbox.Retry{
		Store: box, Deliverer: s.client, Token: runner.NewToken(), NoPayload: o.http.noPayload, Request: storedRequest(m), Log: o.env.Log,
	}
	res, err := retry.Row(ctx, row, m)
	if err != nil {
		return o.outboxFault(d, err)
	}
	return o.reportOutbox(d, res)
}

type outboxRetryStore interface {
	runner.OutboxLeaser
	runner.OutboxMarker
	runner.OutboxReviver
}

// outboxRow is the row of a dead letter, or why it is not sent.
func (o *failedRetryOptions) outboxRow(d runner.DeadLetter) (int64, error) {
	id, ok := runner.OutboxID(d.EventID)
	switch {
	case !ok:
		return 0, errors.New("it names no row of the outbox")
	case o.mayRepeat(d):
		return 0, errMayRepeat
	}
	return id, nil
}

// outboxFault tells what is the answer no from what is not possible.
func (o *failedRetryOptions) outboxFault(d runner.DeadLetter, err error) error {
	if errors.Is(err, runner.ErrNoOutboxRow) || errors.Is(err, runner.ErrOutboxLeased) {
		return o.cannot(d, err)
	}
	return fmt.Errorf("dead letter %d: %w", d.ID, err)
}

func (o *failedRetryOptions) reportOutbox(d runner.DeadLetter, res runner.DeliveryResult) error {
	switch {
	case res.Outcome == runner.Delivered:
		return nil
	case res.Outcome == runner.InDoubt:
		fmt.Fprintf(o.env.Err, "oncectl: %s is in doubt: %s; see 'oncectl failed list'\n", d.EventID, oneLine(res.LastError))
		return errNo
	case res.Interrupted:
		return fmt.Errorf("interrupted before %s was sent; it can be retried", d.EventID)
	}
	fmt.Fprintf(o.env.Err, "oncectl: %s was not delivered: %s; see 'oncectl failed list'\n", d.EventID, oneLine(res.LastError))
	return errNo
}
