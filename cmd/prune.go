package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

func newPruneCmd(env *Env, store *storeOptions) *cobra.Command {
	var age time.Duration
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE",
		Short: "Forget what has been over for long",
		Long: `prune deletes what has been over for longer than AGE: bare and finished claims,
resolved dead letters, sent rows of the outbox, finished runs. It works in small
batches, and beside everything else.

The age is the window in which duplicates are known: an event that comes again
after its claim was pruned is new, and has its side effect again. Take an age
beyond the longest time after which anything may be retried by those who call
oncectl.

It keeps what is unfinished or in doubt, each lock's latest run and last success,
and succeeded runs of a --once key.`,
		Example: `  oncectl prune --older-than 90d
  oncectl run --lock prune --tick '@daily' -- oncectl prune --older-than 90d`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !cmd.Flags().Changed("older-than"):
				return hinted{usagef("how old? --older-than is missing"), "--older-than 90d, for example"}
			case age <= 0:
				return hinted{usagef("--older-than must be positive"), "it is the window in which duplicates are known: without one, each would have its side effect again"}
			}
			return prune(cmd.Context(), env, store, format, age)
		},
	}
	addAge(cmd.Flags(), &age, "older-than", "forget what has been over for longer than this `AGE`")
	format.addFlag(cmd.Flags())
	return cmd
}

// prunedRecord is what was deleted, in JSON. The names are part of the promise.
type prunedRecord struct {
	Claims      int `json:"claims"`
	DeadLetters int `json:"dead_letters"`
	Outbox      int `json:"outbox"`
	Runs        int `json:"runs"`
}

func prune(ctx context.Context, env *Env, o *storeOptions, format outputFormat, age time.Duration) error {
	st, err := o.openStore(ctx, env, "")
	if err != nil {
		return err
	}
	defer st.Close()
	p, err := st.Prune(ctx, age)
	if p == (runner.Pruned{}) && (err != nil || format == formatTable) {
		return err // cron mails every byte
	}
	shown := printRecord(env.Out, format, prunedRecord{p.Claims, p.DeadLetters, p.Outbox, p.Runs}, func() string {
		return fmt.Sprintf("pruned %d claims, %d dead letters, %d rows of the outbox, %d runs", p.Claims, p.DeadLetters, p.Outbox, p.Runs)
	})
	if err == nil {
		err = shown
	}
	return err
}
