package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

type sendOptions struct {
	env     *Env
	store   *storeOptions
	http    httpOptions
	message messageOptions
	batch   bool
}

func newSendCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &sendOptions{env: env, store: store}
	cmd := &cobra.Command{
		Use:   "send --id ID --url URL [flags] | send --batch [--url URL] [flags]",
		Short: "Deliver a message over HTTP, once",
		Long: `send claims the event, delivers the message and records the outcome. A message
that was delivered, or is being sent, is not sent again: such a call ends 0.

Only what surely was not processed is tried again: the statuses of --retry-on,
and failures before the request was written. What may have been processed (a
timeout, a reset, 500, 502, 503, 504 …) is in doubt: a dead letter that a person
looks at. With --idempotent the receiver is trusted to honour Idempotency-Key,
and those are tried again as well. Redirects are not followed.

With --batch the messages come on standard input, one JSON object a line, and
the results go to standard output likewise:

  {"id": "invoice/4711", "payload": {"total": 12}}
  {"id": "note/1", "data": "plain text", "url": "https://…", "headers": {"X-A": "b"}}

Content-Type is application/x-www-form-urlencoded for -d, as with curl, and
application/json for --json and payload; -H sets another. The body is sent as it
is, byte for byte.

Exit status: 0 delivered, now or before, or being sent; 1 not delivered and saved
in failed_jobs, or in doubt; 2 not possible: usage, a bad line, store
unreachable, the id used with another payload.`,
		Example: `  oncectl send --id invoice/4711 --url https://hooks.example/in --json '{"total":12}'
  oncectl send --id report/2026-12 --url https://hooks.example/in -d @report.pdf -H 'Content-Type: application/pdf'
  oncectl send --batch --url https://hooks.example/in <events.ndjson >results.ndjson`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := stopOnSignal(cmd.Context())
			defer stop()
			if o.batch {
				return o.runBatch(ctx, cmd)
			}
			return o.run(ctx, cmd)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.batch, "batch", false, "messages from standard input, one JSON object a line")
	o.message.addFlags(f)
	o.http.addFlags(f)
	return cmd
}

// stopOnSignal ends the context when this process is asked to stop.
func stopOnSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// run sends one message.
func (o *sendOptions) run(ctx context.Context, cmd *cobra.Command) error {
	order, err := o.message.order(o.env, cmd)
	if err != nil {
		return err
	}
	sender, err := o.http.open(ctx, o.env, o.store)
	if err != nil {
		return err
	}
	defer sender.Close()
	if err := sender.client.Check(order.Message); err != nil {
		return err
	}
	return reportSend(o.env, sender.Send(ctx, order))
}

// reportSend says what a person has to know of a single send. Silence is good.
func reportSend(env *Env, r runner.SendResult) error {
	if r.Err != nil {
		return explainSend(r.Err)
	}
	switch r.Answer {
	case runner.NotSent:
		fmt.Fprintf(env.Err, "oncectl: event %q was not delivered: %s; see 'oncectl failed list'\n", r.ID, oneLine(r.Delivery.LastError))
		return errNo
	case runner.MaybeSent:
		fmt.Fprintf(env.Err, "oncectl: event %q is in doubt: %s; see 'oncectl failed list'\n", r.ID, doubt(r))
		return errNo
	case runner.GivenBack:
		return fmt.Errorf("interrupted before event %q was sent; it can be sent again", r.ID)
	}
	return nil
}

// doubt says why an event is in doubt.
func doubt(r runner.SendResult) string {
	if b := r.Before; b != nil {
		return fmt.Sprintf("%s claimed it at %s and could not tell what became of it", b.Owner, formatTime(b.ClaimedAt))
	}
	return oneLine(r.Delivery.LastError)
}

// explainSend adds what to do about a refusal.
func explainSend(err error) error {
	if errors.Is(err, runner.ErrOtherPayload) {
		return hinted{err, "an event id stands for one message: give this one an id of its own"}
	}
	return err
}
