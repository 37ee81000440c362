package cmd

import (
	"context"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/broker"
)

// claimStore is what claim, done and release need, be it a store or the run
// above.
type claimStore interface {
	runner.Claimer
	runner.Renewer
	Lookup(ctx context.Context, ids []runner.EventID) ([]runner.Claim, error)
	Close() error
}

// openClaims gives the job of a run its run's broker, and everybody else the
// store. There is no way from one to the other: a claim that went around its
// run's lock would not be fenced.
func (o *storeOptions) openClaims(ctx context.Context, env *Env) (claimStore, error) {
	if !env.inRun() {
		return o.openStore(ctx, env, "")
	}
	if o.databaseURL != "" {
		return nil, hinted{usagef("--database-url has no place inside a run: its claims go through the run"),
			"leave it out, or unset ONCECTL_SOCKET for a claim that is not the run's"}
	}
	return broker.Dial(env.Getenv("ONCECTL_SOCKET")), nil
}
