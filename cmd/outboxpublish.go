package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/delivery"
	"github.com/oncectl/oncectl/runner/outbox"
)

type outboxPublishOptions struct {
	env     *Env
	store   *storeOptions
	http    httpOptions
	drain   outbox.Options
	url     string
	method  string
	headers []string
	argv    []string
	format  outputFormat
	show    bool // the result was asked for
}

func newOutboxPublishCmd(env *Env, store *storeOptions) *cobra.Command {
	o := &outboxPublishOptions{env: env, store: store}
	cmd := &cobra.Command{
		Use:   "publish --url URL [flags] | publish [flags] -- COMMAND [ARG…]",
		Short: "Publish what is in the outbox",
		Long: `publish sends what is in the outbox and ends when there is nothing left, or with
--for keeps looking. Any number of hosts may run it at once.

A message is delivered at least once, always under the same id: it carries
Idempotency-Key: outbox-<id>. One whose publisher died goes out again after 30 s
at most; an answer that leaves open whether it was processed is followed by
another try. The receiver tells repeats by the id.

COMMAND gets the payload on standard input, and ONCECTL_OUTBOX_ID, _TOPIC and
_KEY; exit status 0 means that it was published.

Messages with the same key go out one at a time, in the order of their ids among
those committed when they are taken, over all topics. A message that keeps
failing, --retries times after the first try, becomes a dead letter; others go
out meanwhile. Those behind it in its key wait until it is retried or resolved
('oncectl failed'), unless --skip-failed. That the receiver is not reached at all
costs no message a try.

Exit status: 0 published, or nothing to do; 1 some became dead letters; 2 not
possible: usage, store unreachable, receiver not reached, interrupted.`,
		Example: `  * * * * * oncectl outbox publish --for 55s --url https://hooks.example/in
  oncectl outbox publish --topic mail -- /usr/local/bin/send-mail`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.argv = args
			o.show = cmd.Flags().Changed("output")
			if err := o.complete(cmd); err != nil {
				return err
			}
			ctx, stop := stopOnSignal(cmd.Context())
			defer stop()
			return o.run(ctx)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.url, "url", "", "where to send it")
	f.StringVarP(&o.method, "request", "X", http.MethodPost, "HTTP `METHOD`")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "header `'K: V'`, or @FILE with one a line (may be repeated)")
	f.StringVar(&o.drain.Topic, "topic", "", "only messages of this `TOPIC`")
	f.IntVar(&o.drain.Batch, "batch", 100, "most messages to take at a time")
	f.IntVar(&o.drain.Limit, "limit", 0, "end after so many messages (0: none)")
	f.DurationVar(&o.drain.For, "for", 0, "keep looking for so long")
	f.BoolVar(&o.drain.SkipFailed, "skip-failed", false, "a message that has failed does not hold up its key")
	o.format.addFlag(f)
	o.http.addFlags(f)
	f.Lookup("concurrency").Usage = "most messages in flight"
	f.Lookup("timeout").Usage = "time limit of one try, or of one COMMAND"
	for _, name := range []string{"idempotent", "retry-on"} {
		_ = f.MarkHidden(name) // every failure is tried again
	}
	return cmd
}

// complete checks the flags.
func (o *outboxPublishOptions) complete(cmd *cobra.Command) error {
	switch {
	case o.url == "" && len(o.argv) == 0:
		return usagef("where to? give --url, or -- COMMAND")
	case o.url != "" && len(o.argv) > 0:
		return usagef("--url and COMMAND are two ways to publish: take one")
	case o.drain.Batch < 1 || o.drain.Limit < 0 || o.drain.For < 0:
		return usagef("--batch must be at least 1, --limit and --for must not be negative")
	}
	for _, name := range []string{"request", "header", "no-idempotency-key", "webhook-secret-file", "cacert", "connect-timeout"} {
		if o.url == "" && cmd.Flags().Changed(name) {
			return usagef("--%s is for --url, not for a COMMAND", name)
		}
	}
	if err := o.http.complete(o.env); err != nil {
		return err
	}
	h := &o.http
	o.drain.Concurrency, o.drain.NoPayload = h.concurrency, h.noPayload
	o.drain.Retries, o.drain.Backoff, o.drain.BackoffMax, o.drain.MaxWait = h.Retries, h.Backoff, h.BackoffMax, h.MaxWait
	// While all that can be is in flight, as much again is in hand.
	o.drain.Batch = max(o.drain.Batch, 2*h.concurrency)
	return nil
}

func (o *outboxPublishOptions) run(ctx context.Context) error {
	publisher, closePublisher, err := o.publisher()
	if err != nil {
		return err
	}
	defer closePublisher()
	st, err := o.store.openStore(ctx, o.env, "")
	if err != nil {
		return err
	}
	defer st.Close()
	d := &outbox.Drain{
		Options: o.drain, Store: st, Publisher: publisher, Token: runner.NewToken(), Log: o.env.Log, Random: rand.Float64,
	}
	res, err := d.Run(ctx)
	return o.report(ctx, st, res, err)
}

// publisher is what publishes, checked as far as it can be before a row is
// taken.
func (o *outboxPublishOptions) publisher() (p outbox.Publisher, closer func(), err error) {
	if len(o.argv) > 0 {
		return o.command()
	}
	header, err := parseHeaders(o.headers)
	if err != nil {
		return nil, nil, err
	}
	m := runner.Message{ID: runner.OutboxEventID(1), URL: o.url, Method: o.method, Header: withType(header, jsonType)}
	once := o.http.Options
	once.Retries = 0 // see outbox.HTTP
	client := delivery.New(once, delivery.NewGate(o.http.concurrency))
	if err := client.Check(m); err != nil {
		return nil, nil, err
	}
	o.drain.Request = storedRequest(m)
	return outbox.HTTP{Deliverer: client, Message: m}, client.Close, nil
}

func (o *outboxPublishOptions) command() (outbox.Publisher, func(), error) {
	if _, err := exec.LookPath(o.argv[0]); err != nil {
		kind := runner.ErrNotFound
		if !errors.Is(err, exec.ErrNotFound) {
			kind = runner.ErrNotExecutable
		}
		return nil, nil, fmt.Errorf("%w: %w", kind, err)
	}
	return outbox.Command{
		Argv: o.argv, Env: withSelfOnPath(o.env.Environ), Stdout: o.env.Out, Stderr: &lockedWriter{w: o.env.Err},
		Timeout: o.http.Timeout, Grace: o.http.Grace,
	}, func() {}, nil
}

// outboxResult is what a run came to, in JSON. The names are part of the
// promise.
type outboxResult struct {
	Sent    int    `json:"sent"`
	Failed  int    `json:"failed"`
	Retried int    `json:"retried"`
	Lost    int    `json:"lost"`
	Left    *int64 `json:"left"`
	Ended   string `json:"ended"`
}

// report says what there is to say, and decides the exit status.
func (o *outboxPublishOptions) report(ctx context.Context, st runner.OutboxReader, res outbox.Result, err error) error {
	if o.show || o.env.Log.Enabled(ctx, slog.LevelInfo) {
		o.printResult(ctx, st, res)
	}
	if res.Failed > 0 {
		fmt.Fprintf(o.env.Err, "oncectl: %d messages of the outbox failed, the last with: %s; see 'oncectl failed list --kind outbox'\n",
			res.Failed, oneLine(res.LastError))
	}
	switch {
	case err != nil:
		return err
	case res.Ended == outbox.Interrupted:
		return errors.New("interrupted: what was not published goes out with the next run")
	case res.Away:
		return fmt.Errorf("messages wait in the outbox, since the receiver is not reached: %s", oneLine(res.LastError))
	case res.Failed > 0:
		return errNo
	}
	return nil
}

// printResult prints the result on stdout if it was asked for, else on stderr.
func (o *outboxPublishOptions) printResult(ctx context.Context, st runner.OutboxReader, res outbox.Result) {
	r := outboxResult{Sent: res.Sent, Failed: res.Failed, Retried: res.Tries, Lost: res.Lost, Ended: string(res.Ended)}
	left := "unknown"
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	if res.Ended != outbox.StoreFailed {
		if b, err := st.Backlog(ctx, o.drain.Topic); err == nil {
			r.Left, left = &b.Pending, fmt.Sprint(b.Pending)
		}
	}
	line := func() string {
		return fmt.Sprintf("sent %d, failed %d, left %s, ended: %s", r.Sent, r.Failed, left, endedWords[res.Ended])
	}
	if o.show {
		_ = printRecord(o.env.Out, o.format, r, line) // the work is done, whether or not anybody reads it
		return
	}
	fmt.Fprintf(o.env.Err, "oncectl: outbox: %s\n", line())
}

var endedWords = map[outbox.Reason]string{
	outbox.Empty: "empty", outbox.TimeOver: "time over", outbox.BatchLimit: "batch limit", outbox.Interrupted: "interrupted",
	outbox.Unreachable: "receiver not reached", outbox.StoreFailed: "store failed",
}

// lockedWriter is for writers that write at once.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
