package cmd

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

// settleOptions are those of done and release, which differ in what becomes of
// the claims.
type settleOptions struct {
	env   *Env
	store *storeOptions
	ids   []string
	verb  string // for messages
	apply func(ctx context.Context, c runner.Claimer, ids []runner.EventID) ([]runner.SettleAnswer, error)
}

func newDoneCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &settleOptions{env: env, store: store, verb: "done", apply: applyDone}
	return o.command(&cobra.Command{
		Use:   "done ID…",
		Short: "Say that claimed events have had their side effect",
		Long: `done finishes claims that were made with --expires: their outcome is delivered.
In a run it only finishes claims that the run still owns.

Exit status: 0 done (also if they were before), 1 at least one was not claimed
or belongs to somebody else by now, 2 not possible.`,
		Example: `  oncectl claim --expires 10m export/2026-12 && ./export && oncectl done export/2026-12`,
	})
}

func newReleaseCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &settleOptions{env: env, store: store, verb: "release", apply: applyRelease}
	return o.command(&cobra.Command{
		Use:   "release ID…",
		Short: "Give claims back, so that the events can be won again",
		Long: `release gives claims back. In a run it only gives back claims that the run
still owns. An event that was delivered is not given back.

Exit status: 0 given back, 1 at least one was not claimed, was delivered or
belongs to somebody else, 2 not possible.`,
		Example: `  oncectl release invoice/4711`,
	})
}

func (o *settleOptions) command(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringArrayVar(&o.ids, "id", nil, "this `ID`, whatever it begins with (may be repeated)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.ids = append(o.ids, args...)
		if len(o.ids) == 0 {
			return usagef("which event? there is no id")
		}
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *settleOptions) run(ctx context.Context) error {
	ids := make([]runner.EventID, len(o.ids))
	for i, arg := range o.ids {
		id, err := runner.ParseEventID(arg)
		if err != nil {
			return err
		}
		ids[i] = id
	}
	claims, err := o.store.openClaims(ctx, o.env)
	if err != nil {
		return err
	}
	defer claims.Close()
	answers, err := o.apply(ctx, claims, ids)
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.verb, describe(ids), err)
	}
	return o.report(ids, answers)
}

// report names each event that stayed as it was.
func (o *settleOptions) report(ids []runner.EventID, answers []runner.SettleAnswer) error {
	var err error
	for i, a := range answers {
		var why string
		switch {
		case a == runner.NotClaimed:
			why = "it is not claimed"
		case a == runner.NotOwner:
			why = "it belongs to somebody else by now"
		case a == runner.AlreadySettled && o.verb == "release":
			why = "it was delivered"
		default:
			continue
		}
		fmt.Fprintf(o.env.Err, "oncectl: %s %s: %s; see 'oncectl claims'\n", o.verb, strconv.Quote(string(ids[i])), why)
		err = errNo
	}
	return err
}

func applyDone(ctx context.Context, c runner.Claimer, ids []runner.EventID) ([]runner.SettleAnswer, error) {
	s := make([]runner.Settlement, len(ids))
	for i, id := range ids {
		s[i] = runner.Settlement{ID: id, Outcome: runner.Delivered}
	}
	return c.Settle(ctx, runner.SettleRequest{Settlements: s})
}

func applyRelease(ctx context.Context, c runner.Claimer, ids []runner.EventID) ([]runner.SettleAnswer, error) {
	return c.GiveBack(ctx, runner.GiveBackRequest{IDs: ids})
}
