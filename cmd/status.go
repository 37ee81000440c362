package cmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

type statusOptions struct {
	env    *Env
	store  *storeOptions
	check  bool
	locks  []string
	maxAge time.Duration
	file   string
	format outputFormat
}

func newStatusCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &statusOptions{env: env, store: store}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is going on, and what needs a person",
		Long: `status shows each lock, who holds it since when and how its latest run ended;
unresolved dead letters; events in doubt; what waits in the outbox. It writes
nothing. A run without a recorded end whose lock is not held is unknown: it, its
host or the store went away.

With --check it prints only what needs a person, nothing when all is well: dead
letters, events in doubt that nobody has resolved, locks whose latest run is
unknown. --lock L --max-age D asks whether a run of L has succeeded in the last
D; --check --max-age D also whether a row waits in the outbox for longer.

Exit status: 0 shown, or all is well; 1 something needs a person (with --check
or --max-age); 2 not possible.`,
		Example: `  oncectl status
  oncectl status --check
  oncectl status --lock nightly-digest --max-age 25h
  oncectl status -o prometheus --file /var/lib/node_exporter/textfile/oncectl.prom`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd.Flags().Changed("max-age")); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.check, "check", false, "print only what needs a person, and end with 1 if anything does")
	f.StringArrayVar(&o.locks, "lock", nil, "only this lock `NAME` (may be repeated)")
	addAge(f, &o.maxAge, "max-age", "end with 1 if no run of --lock has succeeded for this long; with --check, if the outbox has waited for this long")
	f.StringVar(&o.file, "file", "", "write to this `FILE`, by a rename, instead of stdout")
	o.format.addFlag(f, formatPrometheus)
	return cmd
}

func (o *statusOptions) complete(aged bool) error {
	for _, name := range o.locks {
		if _, err := runner.ParseLockName(name); err != nil {
			return fmt.Errorf("--lock: %w", err)
		}
	}
	switch {
	case aged && o.maxAge <= 0:
		return usagef("--max-age must be positive")
	case aged && len(o.locks) == 0 && !o.check:
		return usagef("--max-age goes with --lock or --check")
	}
	return nil
}

func (o *statusOptions) run(ctx context.Context) error {
	st, err := o.store.openStore(ctx, o.env, "")
	if err != nil {
		return err
	}
	defer st.Close()
	s, err := st.Status(ctx)
	if err != nil {
		return err
	}
	if len(o.locks) > 0 {
		s.Locks = slices.DeleteFunc(s.Locks, func(l runner.LockState) bool { return !slices.Contains(o.locks, l.Lock.Name) })
	}
	needs := o.needs(s)
	if err := o.write(func(w io.Writer) error { return o.print(w, s, needs) }); err != nil {
		return err
	}
	if len(needs) > 0 {
		return errNo
	}
	return nil
}

// write has print write to stdout, or to --file.
func (o *statusOptions) write(print func(io.Writer) error) error {
	if o.file == "" {
		return print(o.env.Out)
	}
	return replaceFile(o.file, print)
}

func (o *statusOptions) print(w io.Writer, s runner.Status, needs []need) error {
	switch {
	case o.format == formatPrometheus:
		return printMetrics(w, s)
	case o.format == formatJSON:
		return printRecord(w, o.format, statusJSON(s, needs), nil)
	case o.check || o.maxAge > 0:
		return printNeeds(w, needs)
	}
	return printStatus(w, s)
}

// printNeeds prints a line each for what needs a person.
func printNeeds(w io.Writer, needs []need) error {
	for _, n := range needs {
		if _, err := fmt.Fprintf(w, "%s: %s\n", n.Message, n.Do); err != nil {
			return err
		}
	}
	return nil
}

func printStatus(w io.Writer, s runner.Status) error {
	out := newListing(w, formatTable, []column{
		{"LOCK", 20}, {"HELD BY", 20}, {"SINCE", 20}, {"RUN", 6}, {"OUTCOME", 9}, {"STARTED", 20}, {"TOOK", 9}, {"LAST SUCCESS", 0},
	})
	for _, l := range s.Locks {
		if err := out.add(lockRow(l), nil); err != nil {
			return err
		}
	}
	if len(s.Locks) > 0 {
		out.w.WriteByte('\n')
	}
	out.width = 0 // sentences may go on in the next line, cells may not
	for _, line := range countLines(s) {
		out.text(line)
	}
	return out.close()
}

func lockRow(l runner.LockState) []string {
	return []string{
		l.Lock.Name, orDash(l.Holder), formatTime(l.Since), formatID(l.Last.ID), string(l.Last.Outcome),
		formatTime(l.Last.StartedAt), formatTook(l.Last), formatTime(l.LastSuccess),
	}
}

// formatTook is how long a run took; a dash where nobody knows.
func formatTook(r runner.PastRun) string {
	if r.Outcome == runner.RunUnknown {
		return "-"
	}
	if r.Took < 10*time.Second {
		return r.Took.Round(time.Millisecond).String()
	}
	return r.Took.Round(time.Second).String()
}

// countLines are the counts behind the table, with where to look further.
func countLines(s runner.Status) []string {
	letters := "dead letters  none"
	if n, oldest := countLetters(s); n > 0 {
		letters = fmt.Sprintf("dead letters  %d unresolved, the oldest of %s: oncectl failed list", n, formatTime(oldest))
	}
	doubt := "in doubt      none"
	if s.InDoubt > 0 {
		doubt = fmt.Sprintf("in doubt      %s, %d of them open: oncectl claims --in-doubt", counted(s.InDoubt, "event", "events"), s.InDoubtOpen)
	}
	outbox := "outbox        empty"
	if s.Outbox.Count > 0 {
		outbox = fmt.Sprintf("outbox        %d waiting, the oldest for %v, since %s",
			s.Outbox.Count, backlogAge(s).Round(time.Second), formatTime(s.Outbox.Oldest))
	}
	lines := []string{letters, doubt}
	if s.Expired > 0 {
		lines = append(lines, fmt.Sprintf("              %d expired without an outcome, %d of them sends", s.Expired, s.ExpiredSends))
	}
	return append(lines, "unfinished    "+strconv.Itoa(s.Unfinished), outbox)
}

func countLetters(s runner.Status) (n int, oldest time.Time) {
	for _, l := range s.Letters {
		if n += l.Count; oldest.IsZero() || l.Oldest.Before(oldest) {
			oldest = l.Oldest
		}
	}
	return n, oldest
}
