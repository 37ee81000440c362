package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oncectl/oncectl/runner"
)

func newFailedCmd(env *Env, store *storeOptions) *cobra.Command {
	group := &cobra.Command{
		Use:   "failed",
		Short: "Look at dead letters, send them again or resolve them",
		Long: `A dead letter is something that failed and that a person should see: a run, a
command under a claim, a send, a row of the outbox. It stays until it is
resolved. Commands are shown and never run from here.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(newFailedListCmd(env, store), newFailedShowCmd(env, store), newFailedRetryCmd(env, store), newFailedResolveCmd(env, store))
	return group
}

// addFilter adds the flags that select dead letters.
func addFilter(f *pflag.FlagSet, filter *runner.DeadLetterFilter, kind *string) {
	f.StringVar(kind, "kind", "", "only this `KIND`: run, claim, send or outbox")
	f.StringVar(&filter.Name, "name", "", "only this lock, topic or URL host")
	f.DurationVar(&filter.Since, "since", 0, "only what failed at most this long ago")
}

func checkFilter(filter *runner.DeadLetterFilter, kind string) error {
	switch runner.Kind(kind) {
	case "", runner.KindRun, runner.KindClaim, runner.KindSend, runner.KindOutbox:
		filter.Kind = runner.Kind(kind)
	default:
		return usagef("--kind is run, claim, send or outbox, not %q", kind)
	}
	if filter.Since < 0 {
		return usagef("--since must not be negative")
	}
	return nil
}

// openFailed opens the store and makes dead letters of sends whose sender died.
func openFailed(ctx context.Context, env *Env, o *storeOptions) (store, error) {
	st, err := o.openStore(ctx, env, "")
	if err != nil {
		return nil, err
	}
	if _, err := st.Sweep(ctx); err != nil {
		st.Close()
		return nil, fmt.Errorf("looking for sends that were never finished: %w", err)
	}
	return st, nil
}

func newFailedListCmd(env *Env, store *storeOptions) *cobra.Command {
	var filter runner.DeadLetterFilter
	var kind string
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, oldest first",
		Example: `  oncectl failed list
  oncectl failed list --kind send --since 24h -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFilter(&filter, kind); err != nil {
				return err
			}
			st, err := openFailed(cmd.Context(), env, store)
			if err != nil {
				return err
			}
			defer st.Close()
			out := newListing(env.Out, format, []column{
				{"ID", 6}, {"FAILED", 20}, {"KIND", 6}, {"CERTAINTY", 9}, {"TRIES", 5}, {"NAME", 20}, {"EVENT", 20}, {"ERROR", 0},
			})
			err = st.EachDeadLetter(cmd.Context(), filter, func(d runner.DeadLetter) error {
				return out.add(deadLetterRow(d), deadLetterJSON(d))
			})
			if err != nil {
				return err
			}
			return out.close()
		},
	}
	addFilter(cmd.Flags(), &filter, &kind)
	cmd.Flags().BoolVar(&filter.All, "all", false, "resolved ones too")
	format.addFlag(cmd.Flags())
	return cmd
}

func deadLetterRow(d runner.DeadLetter) []string {
	return []string{
		formatID(d.ID), formatTime(d.FailedAt), string(d.Kind), string(d.Certainty), strconv.Itoa(d.Attempts),
		d.Name, orDash(string(d.EventID)), firstLine(d.Reason()),
	}
}

// deadLetterRecord is a dead letter in JSON. The names are part of the promise.
type deadLetterRecord struct {
	ID          int64           `json:"id"`
	Kind        string          `json:"kind"`
	Name        string          `json:"name"`
	EventID     *string         `json:"event_id"`
	Certainty   string          `json:"certainty"`
	Attempts    int             `json:"attempts"`
	LastError   string          `json:"last_error"`
	FailedAt    time.Time       `json:"failed_at"`
	RetryAt     *time.Time      `json:"retry_at"`
	PayloadHash *string         `json:"payload_hash"`
	Request     json.RawMessage `json:"request"`
	ResolvedAt  *time.Time      `json:"resolved_at"`
	Resolution  *string         `json:"resolution"`
}

func deadLetterJSON(d runner.DeadLetter) deadLetterRecord {
	r := deadLetterRecord{
		ID: d.ID, Kind: string(d.Kind), Name: d.Name, EventID: orNil(string(d.EventID)), Certainty: string(d.Certainty),
		Attempts: d.Attempts, LastError: d.LastError, FailedAt: d.FailedAt.UTC(), RetryAt: timeOrNil(d.RetryAt),
		PayloadHash: orNil(d.PayloadHash), ResolvedAt: timeOrNil(d.ResolvedAt), Resolution: orNil(d.Resolution),
	}
	if json.Valid(d.Request) {
		r.Request = d.Request
	}
	return r
}

func newFailedShowCmd(env *Env, store *storeOptions) *cobra.Command {
	var format outputFormat
	var payload bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one dead letter",
		Args:  oneDeadLetter,
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := openFailed(cmd.Context(), env, store)
			if err != nil {
				return err
			}
			defer st.Close()
			id, _ := strconv.ParseInt(args[0], 10, 64) // checked by oneDeadLetter
			d, err := st.DeadLetter(cmd.Context(), id)
			if err != nil {
				return fmt.Errorf("dead letter %d: %w", id, err)
			}
			if payload {
				_, err := env.Out.Write(d.Payload)
				return err
			}
			return printRecord(env.Out, format, deadLetterJSON(d), func() string { return deadLetterText(d) })
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "print the payload, byte for byte, and nothing else")
	format.addFlag(cmd.Flags())
	return cmd
}

// oneDeadLetter takes exactly one id.
func oneDeadLetter(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("which dead letter? give one id")
	}
	_, err := parseDeadLetterIDs(args)
	return err
}

func parseDeadLetterIDs(args []string) ([]int64, error) {
	ids := make([]int64, len(args))
	for i, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, usagef("%q is not the number of a dead letter", arg)
		}
		ids[i] = id
	}
	return ids, nil
}

func deadLetterText(d runner.DeadLetter) string {
	text := fmt.Sprintf("dead letter %d: %s %s\n  event     %s\n  certainty %s\n  failed    %s after %s\n",
		d.ID, d.Kind, d.Name, orDash(string(d.EventID)), d.Certainty, formatTime(d.FailedAt), counted(d.Attempts, "try", "tries"))
	if !d.RetryAt.IsZero() {
		text += fmt.Sprintf("  retry at  %s\n", formatTime(d.RetryAt))
	}
	payload := "not kept"
	if d.Payload != nil {
		payload = counted(len(d.Payload), "byte", "bytes")
	}
	text += fmt.Sprintf("  payload   %s, SHA-256 %s\n", payload, orDash(d.PayloadHash))
	if len(d.Request) > 0 {
		text += fmt.Sprintf("  request   %s\n", d.Request)
	}
	if !d.ResolvedAt.IsZero() {
		text += fmt.Sprintf("  resolved  %s: %s\n", formatTime(d.ResolvedAt), orDash(d.Resolution))
	}
	return text + "  error     " + printable(d.LastError)
}

func newFailedResolveCmd(env *Env, store *storeOptions) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:     "resolve ID…",
		Short:   "Say that somebody has dealt with dead letters",
		Long:    "resolve takes dead letters off the list. It sends nothing.\n\nExit status: 0 resolved, 1 at least one was already or is not there, 2 not possible.",
		Example: `  oncectl failed resolve 12 13 --note 'sent by hand'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseDeadLetterIDs(args)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				return usagef("which dead letter? there is no id")
			}
			st, err := openFailed(cmd.Context(), env, store)
			if err != nil {
				return err
			}
			defer st.Close()
			return resolveAll(cmd.Context(), env, st, ids, firstNonEmpty(note, "resolved by hand"))
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "what was done about it")
	return cmd
}

func resolveAll(ctx context.Context, env *Env, st runner.DeadLetters, ids []int64, note string) error {
	var answer error
	for _, id := range ids {
		ok, err := st.Resolve(ctx, id, note)
		if err != nil {
			return fmt.Errorf("resolving dead letter %d: %w", id, err)
		}
		if !ok {
			fmt.Fprintf(env.Err, "oncectl: dead letter %d is not there, or resolved already\n", id)
			answer = errNo
		}
	}
	return answer
}
