package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
)

type failedRetryOptions struct {
	env     *Env
	store   *storeOptions
	http    httpOptions
	headers []string
	url     string
	filter  runner.DeadLetterFilter
	kind    string
	inDoubt bool
}

func newFailedRetryCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &failedRetryOptions{env: env, store: store}
	cmd := &cobra.Command{
		Use:   "retry ID… | retry --due [flags]",
		Short: "Send dead letters again, under their event ids",
		Long: `retry sends again what is a send or a row of the outbox, under its event id, and
resolves it on success. A row that a command published goes back into the outbox.
Headers that may be secret are not kept: give them anew with -H, and a URL with
user and password with --url. What is in doubt may have been delivered: it is
sent only with --in-doubt, or when the receiver is told to be --idempotent.

With --due it takes the dead letters whose Retry-After is over: one crontab line
is a slow second chance.

Exit status: 0 all delivered, 1 at least one was not or cannot be sent from
here, 2 not possible.`,
		Example: `  oncectl failed retry 12 -H @/etc/app/auth-header
  oncectl failed retry --due`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := o.complete(args)
			if err != nil {
				return err
			}
			ctx, stop := stopOnSignal(cmd.Context())
			defer stop()
			return o.run(ctx, ids)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.filter.Due, "due", false, "all whose retry time has come")
	f.BoolVar(&o.inDoubt, "in-doubt", false, "also what may have been delivered")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "header `'K: V'`, or @FILE with one a line (may be repeated)")
	f.StringVar(&o.url, "url", "", "send it there instead")
	addFilter(f, &o.filter, &o.kind)
	o.http.addFlags(f)
	return cmd
}

func (o *failedRetryOptions) complete(args []string) ([]int64, error) {
	ids, err := parseDeadLetterIDs(args)
	switch {
	case err != nil:
		return nil, err
	case len(ids) == 0 && !o.filter.Due:
		return nil, usagef("which dead letter? give ids, or --due")
	case len(ids) > 0 && o.filter.Due:
		return nil, usagef("--due takes no ids")
	case len(ids) > 0 && (o.kind != "" || o.filter.Name != "" || o.filter.Since != 0):
		return nil, usagef("--kind, --name and --since go with --due")
	}
	return ids, checkFilter(&o.filter, o.kind)
}

func (o *failedRetryOptions) run(ctx context.Context, ids []int64) error {
	header, err := parseHeaders(o.headers)
	if err != nil {
		return err
	}
	// Also inside a run: these are not its sends.
	sender, err := o.http.openWith(ctx, o.env, func(ctx context.Context, env *Env) (claimStore, error) {
		return o.store.openStore(ctx, env, "")
	})
	if err != nil {
		return err
	}
	defer sender.Close()
	letters := sender.store.(runner.DeadLetters) // every store is; only a broker is not
	if o.filter.Due {
		if ids, err = dueIDs(ctx, letters, o.filter); err != nil {
			return err
		}
	}
	return o.retryAll(ctx, ids, func(id int64) error { return o.retry(ctx, sender, letters, id, header) })
}

// retryAll goes on after one that cannot be sent, so that it does not keep a
// crontab line from the others for good; not without a store, nor after an
// interrupt.
func (o *failedRetryOptions) retryAll(ctx context.Context, ids []int64, retry func(id int64) error) error {
	var answer error
	faults := 0
	for _, id := range ids {
		err := retry(id)
		switch {
		case err == nil:
		case quiet(err):
			answer = err
		case len(ids) == 1 || ctx.Err() != nil || errors.Is(err, runner.ErrUnavailable) || errors.Is(err, runner.ErrRefused):
			return err
		default:
			faults++
			fmt.Fprintf(o.env.Err, "oncectl: %s\n", oneLine(err.Error()))
		}
	}
	if faults > 0 {
		return fmt.Errorf("%d of %d dead letters could not be handled", faults, len(ids))
	}
	return answer
}

func dueIDs(ctx context.Context, letters runner.DeadLetters, filter runner.DeadLetterFilter) ([]int64, error) {
	var ids []int64
	err := letters.EachDeadLetter(ctx, filter, func(d runner.DeadLetter) error {
		ids = append(ids, d.ID)
		return nil
	})
	return ids, err
}

// retry sends one dead letter again.
func (o *failedRetryOptions) retry(ctx context.Context, s *openSender, letters runner.DeadLetters, id int64, header http.Header) error {
	d, err := letters.DeadLetter(ctx, id)
	if err != nil {
		return fmt.Errorf("dead letter %d: %w", id, err)
	}
	switch {
	case !d.ResolvedAt.IsZero():
		return o.cannot(d, errors.New("it is resolved"))
	case d.Kind == runner.KindOutbox:
		return o.retryOutbox(ctx, s, d, header)
	}
	order, err := o.order(d, header)
	if err != nil {
		return o.cannot(d, err)
	}
	if err := s.client.Check(order.Message); err != nil {
		return fmt.Errorf("dead letter %d: %w", id, err)
	}
	res := s.Send(ctx, order)
	if res.Err == nil && (res.Answer == runner.Sent || res.Answer == runner.SentBefore) {
		if _, err := letters.Resolve(ctx, id, "delivered by a retry"); err != nil {
			return fmt.Errorf("resolving dead letter %d: %w", id, err)
		}
	}
	return reportSend(o.env, res)
}

// errMayRepeat is why what is in doubt is not sent without being asked to.
var errMayRepeat = errors.New("it may have been delivered; look, then retry it with --in-doubt or resolve it")

// mayRepeat reports whether to send d could deliver it once more, and nobody
// has said that this will do.
func (o *failedRetryOptions) mayRepeat(d runner.DeadLetter) bool {
	return d.Certainty == runner.InDoubt && !o.inDoubt && !o.http.idempotent
}

// cannot names a dead letter that is not sent.
func (o *failedRetryOptions) cannot(d runner.DeadLetter, err error) error {
	fmt.Fprintf(o.env.Err, "oncectl: dead letter %d: %s\n", d.ID, oneLine(err.Error()))
	return errNo
}

// order makes an order of a dead letter, or says why there is none.
func (o *failedRetryOptions) order(d runner.DeadLetter, header http.Header) (runner.SendOrder, error) {
	var r sentRequest
	switch {
	case d.Kind == runner.KindRun || d.Kind == runner.KindClaim:
		return runner.SendOrder{}, errors.New("it is a command; commands are never run from the table: run it yourself, then resolve it")
	case d.Kind != runner.KindSend:
		return runner.SendOrder{}, fmt.Errorf("a dead letter of kind %s cannot be sent from here", d.Kind)
	case o.mayRepeat(d):
		return runner.SendOrder{}, errMayRepeat
	case d.Payload == nil && d.PayloadHash != runner.HashBytes(nil):
		return runner.SendOrder{}, errors.New("its payload was not kept; send it from where it came from, with 'oncectl send' and the same id")
	case len(d.Request) == 0 || json.Unmarshal(d.Request, &r) != nil:
		return runner.SendOrder{}, errors.New("its request was not kept; send it from where it came from, with 'oncectl send' and the same id")
	}
	order := makeOrder(runner.Message{
		ID: d.EventID, URL: firstNonEmpty(o.url, r.URL), Method: r.Method, Header: withType(header, r.ContentType), Body: d.Payload, Idempotent: o.http.idempotent,
	}, o.http.noPayload)
	order.InDoubt = o.inDoubt
	return order, nil
}
