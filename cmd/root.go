package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Main runs oncectl and returns its exit status.
func Main() Status {
	hidePasswords()
	return Execute(context.Background(), processEnv())
}

// Execute runs the command that env.Args name.
func Execute(ctx context.Context, env *Env) Status {
	root := newRootCmd(env)
	root.SetArgs(env.Args)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return helpStatus(cmd)
	}
	if !quiet(err) {
		printError(env, cmd, err)
		if cmd.Name() == "run" || os.Getpid() == 1 {
			leaveTerminationMessage(env, "oncectl: "+err.Error())
		}
	}
	return exitStatus(err, runsCommand(cmd, env.Args))
}

func newRootCmd(env *Env) *cobra.Command {
	o := &storeOptions{}
	root := &cobra.Command{
		Use:   "oncectl",
		Short: "Run cron jobs once, send messages once",
		Long: `oncectl lets a database decide who wins, before any side effect: which of two
hosts runs tonight's job, which of two retries sends the message.

Without a database it keeps its own on this machine, and guards that only.

Exit status: 0 yes, or done; 1 the answer is no; 2 oncectl could not do it. The
two that run a command, run and claim ID -- COMMAND, end with the command's own
status: see 'oncectl run --help'.

Environment:

  ONCECTL_DATABASE_URL       the store: PostgreSQL's URL, or sqlite:PATH
  ONCECTL_DATABASE_URL_FILE  a file with that in it, a mounted secret say
  DATABASE_URL               the same, where neither of these is set
  PGHOST, PGSERVICE, PGDATABASE
                             libpq's, where none of these is set
  ONCECTL_STATE_DIR          the local store's folder, without a database
  ONCECTL_SCHEMA             PostgreSQL's schema with the tables (oncectl)
  HTTPS_PROXY, NO_PROXY      for send, outbox publish and pings
  TZ                         the zone of --tick without --tz

Files:

  /var/lib/oncectl           root's local store, with its lock files
  ~/.local/state/oncectl     others', or in $XDG_STATE_HOME
  ~/.pgpass                  passwords, as psql has them
  /dev/termination-log       how a run failed, in Kubernetes`,
		Example: `  oncectl run --lock nightly-digest -- ./nightly-digest
  oncectl claim invoice/4711 -- send_mail anna
  oncectl status`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	o.addFlags(root.PersistentFlags())
	verbose := root.PersistentFlags().BoolP("verbose", "v", false, "say on stderr what happens")
	root.PersistentPreRun = func(*cobra.Command, []string) {
		if *verbose {
			env.level.Set(-4) // slog.LevelDebug
		}
	}
	addCommands(root, env, o)
	if asksForWords(env) {
		addWords(root, env)
	}
	return root
}

// commands makes the commands by name.
var commands = []struct {
	name string
	make func(*Env, *storeOptions) *cobra.Command
}{
	{"run", newRunCmd}, {"claim", newClaimCmd}, {"done", newDoneCmd}, {"release", newReleaseCmd}, {"claims", newClaimsCmd},
	{"send", newSendCmd}, {"outbox", newOutboxCmd}, {"failed", newFailedCmd},
	{"status", newStatusCmd}, {"runs", newRunsCmd}, {"report", newReportCmd}, {"prune", newPruneCmd}, {"doctor", newDoctorCmd}, {"schema", newSchemaCmd},
	{"completion", func(env *Env, _ *storeOptions) *cobra.Command { return newCompletionCmd(env) }},
	{"version", func(env *Env, _ *storeOptions) *cobra.Command { return newVersionCmd(env) }},
}

// addCommands adds the command that env.Args begin with, or all where they
// begin otherwise: a claim in a loop should not pay for the flags of the others.
// A completion script needs only the root's name.
func addCommands(root *cobra.Command, env *Env, o *storeOptions) {
	for _, c := range commands {
		if len(env.Args) > 0 && env.Args[0] == c.name {
			root.AddCommand(c.make(env, o))
			return
		}
	}
	for _, c := range commands {
		root.AddCommand(c.make(env, o))
	}
}

// Annotations on commands that the ladder of exit statuses needs.
const (
	annotationRuns   = "oncectl/runs-command" // "always", or "after-dash"
	annotationHelpNo = "oncectl/help-is-no-win"
)

// runsCommand reports whether cmd, called with args, is one of the two that
// run a command, so that its own faults end with 125.
func runsCommand(cmd *cobra.Command, args []string) bool {
	switch cmd.Annotations[annotationRuns] {
	case "always":
		return true
	case "after-dash":
		return slices.Contains(args, "--")
	}
	return false
}

// helpStatus is 0 but for a command whose 0 would be taken for a win when all
// it did was to print its help.
func helpStatus(cmd *cobra.Command) Status {
	help := cmd.Flags().Lookup("help")
	if cmd.Annotations[annotationHelpNo] != "" && help != nil && help.Changed {
		return StatusError
	}
	return StatusOK
}

// noArgs refuses arguments, so that a group command does not take a word it
// does not know for a request to print its help.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := usagef("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong, as cobra has it
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		return hinted{err, "did you mean " + strings.Join(s, " or ") + "?"}
	}
	return err
}

// printError writes one line for err, and a second one with what to do.
func printError(env *Env, cmd *cobra.Command, err error) {
	fmt.Fprintf(env.Err, "oncectl: %s\n", oneLine(err.Error()))
	var h hinted
	var u usageError
	switch {
	case errors.As(err, &h):
		fmt.Fprintf(env.Err, "oncectl: hint: %s\n", h.hint)
	case errors.As(err, &u):
		fmt.Fprintf(env.Err, "oncectl: hint: see '%s --help'\n", cmd.CommandPath())
	}
}

// oneLine folds a message of several lines into one.
func oneLine(s string) string { return strings.Join(strings.FieldsFunc(s, isBreak), " ") }

func isBreak(r rune) bool { return r == '\n' || r == '\r' }

// defaultStoreWait is how long an unreachable store is tried again.
const defaultStoreWait = 10 * time.Second

// Root returns the commands for those who only read them: the manual's
// generator.
func Root() *cobra.Command {
	env := &Env{Getenv: func(string) string { return "" }}
	root := newRootCmd(env)
	each(root, (*cobra.Command).InitDefaultHelpFlag)
	return root
}

// each does something with a command and all below it.
func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		each(c, do)
	}
}
