package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

type claimsOptions struct {
	env    *Env
	store  *storeOptions
	filter runner.ClaimFilter
	format outputFormat
}

func newClaimsCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &claimsOptions{env: env, store: store}
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List claims",
		Long: `claims lists claimed events, oldest first, with their state:

  claimed      a bare claim, complete in itself
  unfinished   has an expiry that has not passed, and no outcome yet
  in_doubt     may have had its side effect: it expired without outcome, or its
               sender could not tell
  delivered    had its side effect
  failed       surely had not`,
		Example: `  oncectl claims --in-doubt
  oncectl claims --prefix invoice/ --since 24h -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.filter.Since < 0 {
				return usagef("--since must not be negative")
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.filter.InDoubt, "in-doubt", false, "only events in doubt")
	f.StringVar(&o.filter.Prefix, "prefix", "", "only ids that begin with this")
	f.DurationVar(&o.filter.Since, "since", 0, "only claims made at most this long ago")
	o.format.addFlag(f)
	return cmd
}

func (o *claimsOptions) run(ctx context.Context) error {
	st, err := o.store.openStore(ctx, o.env, "")
	if err != nil {
		return err
	}
	defer st.Close()
	out := newListing(o.env.Out, o.format, []column{
		{"STATE", 10}, {"CLAIMED", 20}, {"EXPIRES", 20}, {"RUN", 6}, {"OWNER", 20}, {"EVENT", 0},
	})
	err = st.EachClaim(ctx, o.filter, func(c runner.Claim) error { return out.add(claimRow(c), claimJSON(c)) })
	if err != nil {
		return err
	}
	return out.close()
}

func claimRow(c runner.Claim) []string {
	return []string{c.State(), formatTime(c.ClaimedAt), formatTime(c.ExpiresAt), formatID(c.RunID), orDash(c.Owner), string(c.ID)}
}

// claimRecord is a claim in JSON. The names are part of the output's promise.
type claimRecord struct {
	EventID     string     `json:"event_id"`
	State       string     `json:"state"`
	ClaimedAt   time.Time  `json:"claimed_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
	FinishedAt  *time.Time `json:"finished_at"`
	Outcome     *string    `json:"outcome"`
	RunID       *int64     `json:"run_id"`
	Owner       *string    `json:"owner"`
	PayloadHash *string    `json:"payload_hash"`
}

func claimJSON(c runner.Claim) claimRecord {
	return claimRecord{
		EventID: string(c.ID), State: c.State(), ClaimedAt: c.ClaimedAt.UTC(),
		ExpiresAt: timeOrNil(c.ExpiresAt), FinishedAt: timeOrNil(c.FinishedAt),
		Outcome: orNil(string(c.Outcome)), RunID: orNil(c.RunID), Owner: orNil(c.Owner), PayloadHash: orNil(c.PayloadHash),
	}
}
