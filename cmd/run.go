package cmd

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/schedule"
)

// Defaults of run's flags.
const (
	// defaultKillAfter stays under the 30 s that Kubernetes gives a Pod to end
	// (terminationGracePeriodSeconds).
	defaultKillAfter = 25 * time.Second
	defaultLockGrace = 30 * time.Second
)

type runOptions struct {
	env   *Env
	store *storeOptions

	lock      string
	lockID    string
	wait      time.Duration
	busyExit  int
	splay     time.Duration
	tick      string
	tz        string
	once      string
	timeout   time.Duration
	killAfter time.Duration
	onLoss    string
	grace     time.Duration
	quietOK   bool
	keepArgs  bool

	concurrency int
	ping        pingOptions
}

func newRunCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &runOptions{env: env, store: store}
	cmd := &cobra.Command{
		Use:   "run --lock NAME [flags] -- COMMAND [ARG…]",
		Short: "Run a command under a lock that one run at a time holds",
		Long: `run takes the lock, starts the command, watches over both until the command has
ended, records how it ended and gives the lock back. A second run of the same
lock, on any host that shares the store, is skipped quietly.

With --tick or --once it is also skipped when a run of that tick or key has
succeeded; one that failed or crashed may run again. The tick is that of the
database's clock.

The command finds ONCECTL_RUN_ID, ONCECTL_LOCK, ONCECTL_SOCKET and, with a tick
or key, ONCECTL_KEY and ONCECTL_SCHEDULED_AT in its environment; 'oncectl claim'
in it goes through the run and is worth nothing once the lock is lost.

With --ping a monitor is told of the start (URL/start), of success (URL) and of
failure (URL/N, N the exit status), with the last 10 kB of the job's output; of
a skipped run nothing. A failed ping changes nothing but stderr.

Exit status: the command's own, 128+n if signal n killed it; 0 also when it was
skipped; 120 the lock was lost and the job was ended; 124 --timeout passed; 125
oncectl itself failed; 126 and 127 the command cannot be executed, is not found.`,
		Example: `  oncectl run --lock nightly-digest -- ./nightly-digest
  oncectl run --lock nightly-digest --tick '0 3 * * *' --tz Europe/Berlin -- ./nightly-digest
  oncectl run --lock import --wait 10m --timeout 1h -- ./import --all
  oncectl run --lock backup --ping-file /etc/oncectl/backup.ping -- ./backup
  oncectl run --lock migrate --once 2026-12-release -- ./migrate`,
		Annotations:           map[string]string{annotationRuns: "always"},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := o.job(cmd, args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), job)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *runOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the command's name is the command's
	f.StringVar(&o.lock, "lock", "", "`NAME` of the lock")
	f.StringVar(&o.lockID, "lock-id", "", "advisory lock key `N` to share with other code, instead of the one made from NAME")
	f.DurationVar(&o.wait, "wait", 0, "wait this long for a busy lock")
	f.IntVar(&o.busyExit, "busy-exit", 0, "exit status `N` when the lock is busy")
	f.DurationVar(&o.splay, "splay", 0, "first wait for a part of this time, fixed by host and lock")
	f.StringVar(&o.tick, "tick", "", "run once for each tick of this `CRON` expression")
	f.StringVar(&o.tz, "tz", "", "time `ZONE` of --tick (default: the host's)")
	f.StringVar(&o.once, "once", "", "run until one run of this `KEY` has succeeded")
	f.DurationVar(&o.timeout, "timeout", 0, "end the command after this time (default: never)")
	f.DurationVar(&o.killAfter, "kill-after", defaultKillAfter, "time from SIGTERM to SIGKILL")
	f.StringVar(&o.onLoss, "on-lock-loss", string(runner.LossPause), "`POLICY` for a lost lock: pause the job until it is back, or stop the job")
	f.DurationVar(&o.grace, "lock-grace", defaultLockGrace, "how long a paused job waits for its lock")
	f.IntVar(&o.concurrency, "concurrency", 4, "most requests in flight, of all sends of the job together")
	o.ping.addFlags(f)
	f.BoolVar(&o.quietOK, "quiet-ok", false, "show the job's output only if it fails")
	f.BoolVar(&o.keepArgs, "keep-args", false, "keep the command's arguments in the dead letter of a failure")
}

// job checks the command line and makes a Job of it.
func (o *runOptions) job(cmd *cobra.Command, args []string) (runner.Job, error) {
	lock, err := o.lockIdentity()
	if err != nil {
		return runner.Job{}, err
	}
	if err := o.check(cmd, args); err != nil {
		return runner.Job{}, err
	}
	job := runner.Job{
		Lock: lock, Argv: args, Env: o.env.Environ, OnceKey: o.once,
		Wait: o.wait, Splay: o.splay, Timeout: o.timeout, KillAfter: o.killAfter, LockGrace: o.grace,
		OnLoss: runner.LossPolicy(o.onLoss), QuietOK: o.quietOK, KeepArgs: o.keepArgs,
	}
	if lock.Foreign {
		// Others leave no trace in the fence, so that nobody could tell
		// whether they ran while the job was paused.
		job.OnLoss = runner.LossStop
	}
	if o.tick != "" {
		s, err := schedule.Parse(o.tick, o.tz)
		if err != nil {
			return runner.Job{}, err
		}
		job.Schedule = s
	}
	return job, nil
}

func (o *runOptions) check(cmd *cobra.Command, args []string) error {
	changed := cmd.Flags().Changed
	switch {
	case len(args) == 0:
		return usagef("which command? write it after --")
	case o.tick != "" && o.once != "":
		return usagef("--tick and --once both give the run its key: take one")
	case changed("tick") && o.tick == "":
		return usagef("--tick is empty")
	case changed("once") && o.once == "":
		return usagef("--once is empty")
	case changed("ping") && o.ping.url == "":
		return usagef("--ping is empty")
	case changed("ping-file") && o.ping.file == "":
		return usagef("--ping-file is empty")
	case o.tz != "" && o.tick == "":
		return usagef("--tz goes with --tick")
	case o.onLoss != string(runner.LossPause) && o.onLoss != string(runner.LossStop):
		return usagef("--on-lock-loss is pause or stop, not %q", o.onLoss)
	case o.concurrency < 1:
		return usagef("--concurrency must be at least 1")
	case o.busyExit < 0 || o.busyExit > 255:
		return usagef("--busy-exit is 0 to 255, not %d", o.busyExit)
	}
	if o.once != "" {
		if _, err := runner.ParseEventID(o.once); err != nil {
			return fmt.Errorf("--once: %w", err)
		}
	}
	return o.checkDurations()
}

func (o *runOptions) checkDurations() error {
	for name, d := range map[string]time.Duration{
		"wait": o.wait, "splay": o.splay, "timeout": o.timeout, "kill-after": o.killAfter, "lock-grace": o.grace,
	} {
		if d < 0 {
			return usagef("--%s must not be negative", name)
		}
	}
	return nil
}

// lockIdentity is the lock that --lock and --lock-id name.
func (o *runOptions) lockIdentity() (runner.LockID, error) {
	if o.lock == "" && o.lockID == "" {
		return runner.LockID{}, usagef("which lock? --lock is missing")
	}
	name := o.lock
	if name == "" {
		name = "id " + o.lockID
	}
	if _, err := runner.ParseLockName(name); err != nil {
		return runner.LockID{}, err
	}
	if o.lockID == "" {
		return runner.LockID{Name: name, Key: runner.LockKey(o.store.schemaName(o.env), name)}, nil
	}
	key, err := strconv.ParseInt(o.lockID, 10, 64)
	if err != nil {
		return runner.LockID{}, usagef("--lock-id is a signed 64-bit number, not %q", o.lockID)
	}
	return runner.LockID{Name: name, Key: key, Foreign: true}, nil
}

// run lives the run, and tells the monitoring service how it went.
func (o *runOptions) run(ctx context.Context, job runner.Job) error {
	p, err := o.ping.open(o.env, job.Lock.Name)
	if err != nil {
		return err
	}
	defer p.close()
	job.KeepOutput = p.keep()
	return o.live(ctx, job, p)
}

// live puts the run together and lives it.
func (o *runOptions) live(ctx context.Context, job runner.Job, p *pinger) error {
	jobs, signals := prepareJobs(o.env, job.Lock.Name)
	defer jobs.Abandon()
	st, err := o.store.openStore(ctx, o.env, job.Lock.Name)
	if err != nil {
		p.failed(err)
		return err
	}
	defer st.Close()
	job.Env = withSelfOnPath(job.Env)
	r := &runner.Runner{
		Locks: st, Jobs: jobs, Signals: signals, Log: o.env.Log,
		OpenBroker: func() (runner.GatedBroker, error) { return openBroker(o.env, o.concurrency, jobs.Leave) },
		Host:       thisHost(), PID: os.Getpid(), Gone: gone, Started: p.started,
	}
	res, err := r.Run(ctx, job)
	if res.RecordErr != nil {
		fmt.Fprintf(o.env.Err, "oncectl: %s; the run shows as unknown\n", oneLine(res.RecordErr.Error()))
	}
	if err != nil {
		p.failed(err)
		return err
	}
	o.explain(job, res)
	p.ended(res, runStatus(res, o.busyExit))
	if res.Reason != "" {
		leaveTerminationMessage(o.env, jobMessage(job, res))
	}
	if res.Outcome == runner.RunFailed || res.Outcome == runner.RunStopped {
		dieLike(jobs, res.Exit)
	}
	return statusError(runStatus(res, o.busyExit))
}

// explain says what oncectl itself did to a job. What the job did it has said.
func (o *runOptions) explain(job runner.Job, res runner.Result) {
	switch res.Outcome {
	case runner.RunLost:
		fmt.Fprintf(o.env.Err, "oncectl: ended the job of lock %q: its lock was lost; see 'oncectl failed'\n", job.Lock.Name)
	case runner.RunTimedOut:
		fmt.Fprintf(o.env.Err, "oncectl: ended the job of lock %q: it ran longer than --timeout %v\n", job.Lock.Name, job.Timeout)
	}
}
