package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

type outboxAddOptions struct {
	env    *Env
	store  *storeOptions
	topic  string
	key    string
	data   string
	format outputFormat
}

func newOutboxAddCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &outboxAddOptions{env: env, store: store}
	cmd := &cobra.Command{
		Use:   "add --topic TOPIC -d JSON",
		Short: "Put a message into the outbox",
		Long: `add puts one message into the outbox. An application that has a transaction
inserts the row itself, in that transaction; add is for scripts.

Messages of one key are published one at a time, in the order of their ids.

Exit status: 0 added, 2 not possible.`,
		Example: `  oncectl outbox add --topic report.ready -d '{"month":"2026-12"}'
  make-report | oncectl outbox add --topic report.ready --key reports -d @-`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.topic == "" {
				return usagef("which topic? --topic is missing")
			}
			if !cmd.Flags().Changed("data") {
				return usagef("what? -d is missing")
			}
			return o.run(cmd.Context(), cmd.Flags().Changed("output"))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.topic, "topic", "", "the message's `TOPIC`")
	f.StringVar(&o.key, "key", "", "publish it after those of the same `KEY`")
	f.StringVarP(&o.data, "data", "d", "", "payload: `JSON`, @FILE, or @- for standard input")
	o.format.addFlag(f)
	return cmd
}

func (o *outboxAddOptions) run(ctx context.Context, show bool) error {
	payload, err := readBody(o.env, o.data)
	if err != nil {
		return err
	}
	entry := runner.OutboxEntry{Topic: o.topic, Key: o.key, Payload: payload, Token: runner.NewToken()}
	if err := entry.Check(); err != nil {
		return err
	}
	box, err := o.store.openOutboxAdder(ctx, o.env)
	if err != nil {
		return err
	}
	defer box.Close()
	id, err := box.AddToOutbox(ctx, entry)
	switch {
	case errors.Is(err, runner.ErrUnavailable):
		return hinted{err, "look whether it was added before you add it again"}
	case err != nil:
		return err
	case !show:
		return nil
	}
	record := map[string]any{"id": id, "event_id": runner.OutboxEventID(id)}
	return printRecord(o.env.Out, o.format, record, func() string { return fmt.Sprint(runner.OutboxEventID(id)) })
}

// outboxAdder is what adding needs, be it a store or the run above.
type outboxAdder interface {
	runner.OutboxAdder
	Close() error
}

// openOutboxAdder gives the job of a run its run's broker, as openClaims does.
func (o *storeOptions) openOutboxAdder(ctx context.Context, env *Env) (outboxAdder, error) {
	claims, err := o.openClaims(ctx, env)
	if err != nil {
		return nil, err
	}
	box, ok := claims.(outboxAdder)
	if !ok {
		claims.Close()
		return nil, errors.New("this run takes nothing for the outbox")
	}
	return box, nil
}
