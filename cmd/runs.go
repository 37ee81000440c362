package cmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

// runOutcomes are all that a run's outcome can be.
var runOutcomes = []runner.RunOutcome{
	runner.RunSucceeded, runner.RunFailed, runner.RunTimedOut, runner.RunStopped, runner.RunLost, runner.RunRunning, runner.RunUnknown,
}

// defaultRuns is how many runs are listed unless asked for more: a few screens.
const defaultRuns = 100

type runsOptions struct {
	env    *Env
	store  *storeOptions
	filter runner.RunFilter
	format outputFormat
}

func newRunsCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &runsOptions{env: env, store: store}
	var outcome string
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List runs, latest first",
		Long: `runs lists the runs of jobs under their locks, latest first, with what became of
them:

  succeeded, failed   the command's own exit status says so
  timed_out           --timeout passed
  stopped             a signal to oncectl ended it
  lost                it was ended because its lock was lost
  running             it goes on: its lock is held
  unknown             its lock is free, and no end was recorded`,
		Example: `  oncectl runs --lock nightly-digest --since 7d
  oncectl runs --outcome failed -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.filter.Outcome = runner.RunOutcome(outcome)
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.filter.Lock, "lock", "", "only runs of this lock `NAME`")
	f.StringVar(&outcome, "outcome", "", "only runs with this `OUTCOME`")
	addAge(f, &o.filter.Since, "since", "only runs that started at most this long ago")
	f.IntVar(&o.filter.Limit, "limit", defaultRuns, "at most this many; 0 for all")
	o.format.addFlag(f)
	return cmd
}

func (o *runsOptions) complete() error {
	switch {
	case o.filter.Outcome != "" && !slices.Contains(runOutcomes, o.filter.Outcome):
		return usagef("--outcome is one of %s, not %q", strings.Trim(fmt.Sprint(runOutcomes), "[]"), o.filter.Outcome)
	case o.filter.Since < 0:
		return usagef("--since must not be negative")
	case o.filter.Limit < 0:
		return usagef("--limit must not be negative")
	case o.filter.Lock != "":
		if _, err := runner.ParseLockName(o.filter.Lock); err != nil {
			return fmt.Errorf("--lock: %w", err)
		}
	}
	return nil
}

func (o *runsOptions) run(ctx context.Context) error {
	st, err := o.store.openStore(ctx, o.env, "")
	if err != nil {
		return err
	}
	defer st.Close()
	out := newListing(o.env.Out, o.format, []column{
		{"RUN", 6}, {"LOCK", 20}, {"STARTED", 20}, {"TOOK", 9}, {"OUTCOME", 9}, {"EXIT", 4}, {"HOST", 20}, {"KEY", 0},
	})
	err = st.EachRun(ctx, o.filter, func(r runner.PastRun) error { return out.add(runRow(r), runJSON(r)) })
	if err != nil {
		return err
	}
	return out.close()
}

func runRow(r runner.PastRun) []string {
	exit := "-"
	if r.Finished() {
		exit = strconv.Itoa(r.ExitCode)
	}
	return []string{
		formatID(r.ID), r.Lock.Name, formatTime(r.StartedAt), formatTook(r), string(r.Outcome), exit,
		r.Host + "/" + strconv.Itoa(r.PID), orDash(r.Key),
	}
}

// runRecord is a run in JSON. The names are part of the promise.
type runRecord struct {
	ID          int64      `json:"id"`
	Lock        string     `json:"lock"`
	Key         *string    `json:"key"`
	ScheduledAt *time.Time `json:"scheduled_at"`
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	StartedAt   time.Time  `json:"started_at"`
	FinishedAt  *time.Time `json:"finished_at"`
	Duration    *float64   `json:"duration_seconds"` // so far, of one that goes on
	Outcome     string     `json:"outcome"`
	ExitCode    *int       `json:"exit_code"`
}

func runJSON(r runner.PastRun) runRecord {
	out := runRecord{
		ID: r.ID, Lock: r.Lock.Name, Key: orNil(r.Key), ScheduledAt: timeOrNil(r.ScheduledAt), Host: r.Host, PID: r.PID,
		StartedAt: r.StartedAt.UTC(), FinishedAt: timeOrNil(r.FinishedAt), Outcome: string(r.Outcome),
	}
	if r.Outcome != runner.RunUnknown {
		seconds := r.Took.Seconds()
		out.Duration = &seconds
	}
	if r.Finished() {
		out.ExitCode = &r.ExitCode
	}
	return out
}
