package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/pgstore"
)

type claimOptions struct {
	env     *Env
	store   *storeOptions
	ids     []string
	argv    []string // after --, for the winner to run
	stdin   bool
	expires time.Duration

	releaseOnFailure bool
	keepArgs         bool
	killAfter        time.Duration
}

func newClaimCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &claimOptions{env: env, store: store}
	cmd := &cobra.Command{
		Use:   "claim [flags] ID… | claim - | claim ID -- COMMAND [ARG…]",
		Short: "Decide who wins an event: the first claim does",
		Long: `claim inserts the id of an event. The first caller wins, everyone else is told so.

  claim ID            the exit status is the answer
  claim ID ID…        prints the ids that were won, in order
  claim -             the same for ids on standard input, one a line
  claim ID -- CMD…    runs the command only for the winner; others exit 0

An id is 1 to 1024 bytes of UTF-8 without control characters, compared byte for
byte. One that begins with - goes behind --id.

Exit status: 0 won (or any of several), 1 already claimed, 2 undecided or not
possible. With a command: its own status, 0 also if the event was already
claimed, 125 to 127 as for 'oncectl run'. This help ends with 2, so that it is
never taken for a win.

Never write 'oncectl claim ID || exit 0': it takes an outage for a duplicate.
Use 'claim ID -- COMMAND', or look at the status:

  s=0; oncectl claim "$id" || s=$?
  case $s in
    0) send_it ;;
    1) exit 0 ;;
    *) exit 75 ;;
  esac`,
		Example: `  oncectl claim invoice/4711
  oncectl claim invoice/4711 -- ./send-invoice 4711
  jq -r .id events.ndjson | oncectl claim - | xargs -n1 ./send-one
  oncectl claim --expires 10m export/2026-12 && ./export && oncectl done export/2026-12`,
		Annotations:           map[string]string{annotationRuns: "after-dash", annotationHelpNo: "yes"},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.ids, "id", nil, "claim this `ID`, whatever it begins with (may be repeated)")
	f.DurationVar(&o.expires, "expires", 0, "leave the claim unfinished until 'oncectl done'; after this time without one it can be won again")
	f.BoolVar(&o.releaseOnFailure, "release-on-failure", false, "give the claim back when the command fails")
	f.BoolVar(&o.keepArgs, "keep-args", false, "keep the command's arguments in the dead letter of a failure")
	f.DurationVar(&o.killAfter, "kill-after", defaultKillAfter, "time from SIGTERM to SIGKILL for the command")
	return cmd
}

// complete checks the command line.
func (o *claimOptions) complete(cmd *cobra.Command, args []string) error {
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		o.argv = args[n:]
		args = args[:n]
		if len(o.argv) == 0 {
			return usagef("there is no command after --")
		}
	}
	o.stdin = slices.Contains(args, "-")
	if !o.stdin {
		o.ids = append(o.ids, args...)
	}
	switch {
	case o.stdin && (len(args) > 1 || len(o.ids) > 0):
		return usagef("- takes the ids from standard input, so that it stands alone")
	case o.stdin && o.argv != nil:
		return usagef("a command is run for one id, not for standard input")
	case !o.stdin && len(o.ids) == 0:
		return usagef("which event? there is no id")
	case o.argv != nil && len(o.ids) != 1:
		return usagef("a command is run for one id, not for %d", len(o.ids))
	case o.argv == nil && (o.releaseOnFailure || o.keepArgs):
		return usagef("--release-on-failure and --keep-args go with a command")
	case o.expires < 0 || (cmd.Flags().Changed("expires") && o.expires < time.Millisecond):
		return usagef("--expires must be more than zero")
	case o.killAfter < 0:
		return usagef("--kill-after must not be negative")
	}
	return nil
}

func (o *claimOptions) run(ctx context.Context) error {
	if o.argv != nil {
		return o.runCommand(ctx)
	}
	claims, err := o.store.openClaims(ctx, o.env)
	if err != nil {
		return err
	}
	defer claims.Close()
	c := &claiming{claims: claims, req: o.request(), out: o.env.Out}
	switch {
	case o.stdin:
		if _, ok := claims.(*pgstore.Store); ok {
			beside, err := o.store.openStore(ctx, o.env, "")
			if err != nil {
				return err
			}
			defer beside.Close()
			c.beside = beside
		}
		err = c.stream(ctx, o.env.In)
	case len(o.ids) == 1:
		c.out = io.Discard // the exit status is the answer
		fallthrough
	default:
		err = c.list(ctx, o.ids)
	}
	if err != nil {
		return err
	}
	if c.won == 0 {
		return errNo
	}
	return nil
}

// request is what the claims have in common.
func (o *claimOptions) request() runner.ClaimRequest {
	req := runner.ClaimRequest{Owner: callerName(), Expires: o.expires}
	if o.expires > 0 {
		req.Take = runner.TakeExpired
	}
	return req
}

// claiming claims ids and prints those that were won.
type claiming struct {
	claims runner.Claimer
	// beside is for the second of two batches that are under way: another
	// connection to a server, which works on both at once; nil where that is no
	// gain.
	beside runner.Claimer
	req    runner.ClaimRequest
	out    io.Writer
	won    int
}

// list claims the ids of a command line.
func (c *claiming) list(ctx context.Context, args []string) error {
	ids := make([]runner.EventID, len(args))
	for i, arg := range args {
		id, err := runner.ParseEventID(arg)
		if err != nil {
			return err
		}
		ids[i] = id
	}
	return c.batch(ctx, ids)
}

// batch claims ids and prints those that were won.
func (c *claiming) batch(ctx context.Context, ids []runner.EventID) error {
	won, err := c.claim(ctx, c.claims, ids)
	if err != nil {
		return err
	}
	return c.print(ids, won)
}

// claim claims ids under a token of their own: an id that comes again in a
// later batch is a duplicate, not a repeated request.
func (c *claiming) claim(ctx context.Context, claims runner.Claimer, ids []runner.EventID) ([]bool, error) {
	req := c.req
	req.IDs, req.Token = ids, runner.NewToken()
	won, err := claims.Claim(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("claiming %s: %w", describe(ids), err)
	}
	return won, nil
}

// print prints the ids that were won.
func (c *claiming) print(ids []runner.EventID, won []bool) error {
	var lines strings.Builder
	for i, id := range ids {
		if won[i] {
			c.won++
			lines.WriteString(string(id))
			lines.WriteByte('\n')
		}
	}
	if _, err := io.WriteString(c.out, lines.String()); err != nil {
		return fmt.Errorf("printing ids that were won (they stay claimed): %w", err)
	}
	return nil
}

func describe(ids []runner.EventID) string {
	if len(ids) == 1 {
		return strconv.Quote(string(ids[0]))
	}
	return fmt.Sprintf("%d ids from %q on", len(ids), ids[0])
}

// callerName is the owner of a claim that outlives this process: the script
// that made it.
func callerName() string {
	pid := os.Getppid()
	if pid <= 1 {
		pid = os.Getpid()
	}
	return ownerName(pid)
}

// ownerName names a process for people: host and pid.
func ownerName(pid int) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(pid)
}
