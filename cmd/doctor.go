package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

func newDoctorCmd(env *Env, store *storeOptions) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps oncectl from its promises",
		Long: `doctor looks at the store and at this host, and says of each problem what to do:
which store, and what chose it; the server's version, whether it is a primary and
whether there is a pooler in front of it; the schema and the role's rights; the
clocks; the time zone; a local store's file and file system. It changes nothing.

Exit status: 0 all is well, 1 something needs a person, 2 the store is down.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := examine(cmd.Context(), env, store)
			if perr := printFindings(env.Out, format, found); perr != nil {
				return perr
			}
			if err == nil && needsPerson(found) {
				err = errNo
			}
			return err
		},
	}
	format.addFlag(cmd.Flags())
	return cmd
}

// examine returns an error only where the store is down, or oncectl was called
// in a wrong way; the findings stand beside it.
func examine(ctx context.Context, env *Env, o *storeOptions) ([]runner.Finding, error) {
	found := append(findSystem(runtime.GOOS), findZone(env))
	choice, err := o.chooseStore(env)
	if err != nil {
		return append(found, refusal(err)), nil
	}
	what := fmt.Sprintf("the local file %s, chosen by %s", choice.Path, choice.By)
	if choice.Postgres {
		what = fmt.Sprintf("PostgreSQL, chosen by %s; schema %q", choice.By, o.schemaName(env))
	}
	found = append(found, runner.Finding{Check: "store", Severity: runner.Fine, Found: what})
	st, err := o.openStore(ctx, env, "")
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return nil, err
	case err != nil:
		return append(found, refusal(err)), nil
	}
	defer st.Close()
	more, err := st.Inspect(ctx, env.Now)
	found = append(found, more...)
	switch {
	case errors.Is(err, runner.ErrRefused):
		return append(found, refusal(err)), nil
	case errors.Is(err, runner.ErrUnavailable):
		f := refusal(err)
		f.Do = "see that it runs, and that host, port, database, role and password are right"
		return append(found, f), statusError(StatusError) // said by the finding
	}
	return found, err
}

// refusal is why a store was not opened.
func refusal(err error) runner.Finding {
	f := runner.Finding{Check: "store", Severity: runner.Problem, Found: oneLine(err.Error()), Do: "name another store: --database-url, or see README.md, \"Which store\""}
	var h hinted
	if errors.As(err, &h) {
		f.Do = h.hint
	}
	return f
}

// findSystem tells what oncectl lacks on systems that it is not tested on.
func findSystem(goos string) []runner.Finding {
	if goos == "linux" {
		return nil
	}
	return []runner.Finding{{Check: "system", Severity: runner.Note,
		Found: goos + ", not Linux: of a job that has to end, what made a process group of its own lives on, and so does all of it if oncectl and its guard are killed at once"}}
}

// findZone tells the zone of ticks without --tz. Where package time cannot read
// $TZ, it silently takes UTC.
func findZone(env *Env) runner.Finding {
	zone := env.Now().Format("MST, -07:00")
	f := runner.Finding{Check: "time_zone", Severity: runner.Fine, Found: "ticks without --tz are in this host's zone (" + zone + ")"}
	if tz := strings.TrimPrefix(env.Getenv("TZ"), ":"); tz != "" && !strings.HasPrefix(tz, "/") {
		if _, err := time.LoadLocation(tz); err != nil {
			f.Severity, f.Do = runner.Problem, "set TZ to a name such as Europe/Berlin, or give --tz"
			f.Found = fmt.Sprintf("$TZ is %q, which is no zone's name: ticks without --tz are in UTC", tz)
		} else {
			f.Found = fmt.Sprintf("ticks without --tz are in $TZ, %s (%s)", tz, zone)
		}
	}
	return f
}

func needsPerson(found []runner.Finding) bool {
	for _, f := range found {
		if f.Severity == runner.Problem {
			return true
		}
	}
	return false
}

// findingRecord is a finding in JSON. The names are part of the promise.
type findingRecord struct {
	Check    string  `json:"check"`
	Severity string  `json:"severity"`
	Found    string  `json:"found"`
	Do       *string `json:"do"`
}

// printFindings prints one finding a line, and below it what to do.
func printFindings(w io.Writer, format outputFormat, found []runner.Finding) error {
	out := newListing(w, format, nil)
	for _, f := range found {
		if format == formatJSON {
			if err := out.add(nil, findingRecord{f.Check, string(f.Severity), f.Found, orNil(f.Do)}); err != nil {
				return err
			}
			continue
		}
		// Whole also on a terminal: these are sentences, not cells.
		out.width = 0
		out.text(fmt.Sprintf("%-7s  %-11s  %s", f.Severity, f.Check, printable(f.Found)))
		if f.Do != "" {
			out.text(strings.Repeat(" ", 22) + "-> " + printable(f.Do))
		}
	}
	return out.close()
}
