package cmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/report"
)

// defaultReport is how far back a report looks.
const defaultReport = 7 * 24 * time.Hour

type reportOptions struct {
	env   *Env
	store *storeOptions
	since time.Duration
	file  string
}

func newReportCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &reportOptions{env: env, store: store, since: defaultReport}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write a page that shows how things went",
		Long: fmt.Sprintf(`report writes one HTML page: whether last night was good and what needs a person,
as 'status --check' judges it; a timeline of each lock's runs with their
durations; the figures of each lock; runs that did not succeed; dead letters;
events in doubt; what waits in the outbox; who holds which lock. It changes
nothing in the store.

The page is whole in itself: it has no script and loads nothing, so that it can
be served from a folder, mailed or printed. It shows names, event ids and the
first lines of errors, and neither payloads nor requests nor what commands wrote.

However many runs there are, it shows %d timelines of at most 60 marks, figures
of the %d locks used last, and the latest %d rows of each list, and says how
many more there are. Its figures count all.

Exit status: 0 written, also when something needs a person; 2 not possible.`,
			report.MostCharts, report.MostLocks, report.MostRows),
		Example: `  oncectl report -o /srv/www/oncectl.html
  oncectl report --since 30d >report.html`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.since <= 0 {
				return usagef("--since must be positive")
			}
			if o.file == string(formatTable) || o.file == string(formatJSON) {
				return usagef("-o is a file here, and a report is always a page; for a file of that name write -o ./%s", o.file)
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	addAge(f, &o.since, "since", "runs that started at most this long ago")
	f.Lookup("since").DefValue = "7d"
	f.StringVarP(&o.file, "output", "o", "", "write to this `FILE`, by a rename, instead of stdout")
	return cmd
}

func (o *reportOptions) run(ctx context.Context) error {
	choice, err := o.store.chooseStore(o.env)
	if err != nil {
		return err
	}
	st, err := o.store.openStore(ctx, o.env, "")
	if err != nil {
		return err
	}
	defer st.Close()
	r, err := o.collect(ctx, st)
	if err != nil {
		return err
	}
	r.Version, r.Store = versionString(), "the local store "+choice.Path
	if choice.Postgres {
		r.Store = "PostgreSQL, schema " + o.store.schemaName(o.env)
	}
	if o.file == "" {
		return r.Write(o.env.Out)
	}
	return replaceFile(o.file, func(w io.Writer) error { return r.Write(w) })
}

// collect reads all that the page shows. What needs a person is what
// 'status --check' finds.
func (o *reportOptions) collect(ctx context.Context, st store) (*report.Report, error) {
	s, err := st.Status(ctx)
	if err != nil {
		return nil, err
	}
	r := report.New(s, o.since)
	for _, n := range (&statusOptions{check: true}).needs(s) {
		r.Needs = append(r.Needs, report.Need{Message: n.Message, Do: n.Do})
	}
	if err := st.EachRun(ctx, runner.RunFilter{Since: o.since}, r.AddRun); err != nil {
		return nil, err
	}
	if err := st.EachDeadLetter(ctx, runner.DeadLetterFilter{}, r.AddDeadLetter); err != nil {
		return nil, err
	}
	return r, st.EachClaim(ctx, runner.ClaimFilter{InDoubt: true}, r.AddDoubt)
}
