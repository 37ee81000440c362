package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/oncectl/oncectl/runner"
)

// runCommand runs the command of `claim ID -- COMMAND` if the id is won.
func (o *claimOptions) runCommand(ctx context.Context) error {
	id, err := runner.ParseEventID(o.ids[0])
	if err != nil {
		return err
	}
	claims, err := o.store.openClaims(ctx, o.env)
	if err != nil {
		return err
	}
	defer claims.Close()
	jobs, signals := prepareJobs(o.env, string(id))
	defer jobs.Abandon()
	r := &runner.EventRunner{Claims: claims, Jobs: jobs, Signals: signals, Log: o.env.Log}
	res, err := r.Run(ctx, runner.EventJob{
		ID: id, Argv: o.argv, Env: o.env.Environ, Owner: ownerName(os.Getpid()), Expires: o.expires,
		ReleaseOnFailure: o.releaseOnFailure, KeepArgs: o.keepArgs, KillAfter: o.killAfter,
	})
	if res.RecordErr != nil {
		fmt.Fprintf(o.env.Err, "oncectl: %s\n", oneLine(res.RecordErr.Error()))
	}
	switch {
	case err != nil:
		return err
	case !res.Won:
		return o.nameDoubt(ctx, claims, id)
	}
	dieLike(jobs, res.Exit)
	return statusError(res.Exit.Status())
}

// nameDoubt says so when the event that was not won may never have had its
// side effect. That does not change the answer.
func (o *claimOptions) nameDoubt(ctx context.Context, claims claimStore, id runner.EventID) error {
	found, err := claims.Lookup(ctx, []runner.EventID{id})
	if err != nil && !errors.Is(err, runner.ErrUnavailable) {
		return err
	}
	for _, c := range found {
		if c.State() == string(runner.InDoubt) {
			fmt.Fprintf(o.env.Err, "oncectl: event %q is in doubt: %s claimed it at %s and never finished; see 'oncectl claims --in-doubt'\n",
				c.ID, c.Owner, formatTime(c.ClaimedAt))
		}
	}
	return nil
}
