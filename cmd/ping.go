package cmd

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/delivery"
)

// Pings tell a monitoring service that a job has started and how it ended, as
// healthchecks.io understands them (healthchecks.io/docs/http_api): URL/start,
// URL for success, URL/N for exit status N, with rid, one id for both pings of
// a run. They are never in the way: the job does not wait for them, the lock is
// free before the last one, and a failed one costs a line on stderr.
const (
	// pingBody is how much such a service keeps at least: PING_BODY_LIMIT of
	// Healthchecks, 10 kB.
	pingBody = 10_000
	// pingLimit bounds what pings may add to a run after its end; pingStopped is
	// for a run that was sent SIGTERM: with the 25 s of --kill-after it stays
	// under the 30 s that Kubernetes gives.
	pingLimit   = 10 * time.Second
	pingStopped = 3 * time.Second
)

type pingOptions struct {
	url, file string
	noOutput  bool
}

func (o *pingOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.url, "ping", "", "tell the monitor at this `URL` of start and end, as healthchecks.io wants it")
	f.StringVar(&o.file, "ping-file", "", "the same, with the URL in this `FILE`")
	f.BoolVar(&o.noOutput, "no-ping-output", false, "do not send the end of the job's output with the ping")
}

// pinger pings for one run. A nil pinger does nothing.
type pinger struct {
	env    *Env
	lock   string
	url    *url.URL
	client *delivery.Client
	body   bool

	cancel    context.CancelFunc
	firstOver chan struct{} // closed when the first ping is over; nil before it began
}

// open makes the pinger that the flags want. A URL on the command line that is
// none is refused; what is wrong with a file is only said, since a job matters
// more than its monitor, which will notice that the ping is missing.
func (o *pingOptions) open(env *Env, lock string) (*pinger, error) {
	p := &pinger{env: env, lock: lock, body: !o.noOutput}
	switch {
	case o.url != "" && o.file != "":
		return nil, usagef("--ping and --ping-file both name the URL: take one")
	case o.url != "":
		if err := p.use(o.url); err != nil {
			return nil, usagef("--ping: %w", err)
		}
	case o.file != "":
		b, err := os.ReadFile(o.file)
		if err == nil {
			err = p.use(strings.TrimSpace(string(b)))
		}
		if err != nil {
			fmt.Fprintf(env.Err, "oncectl: no pings for lock %q: --ping-file %s: %s\n", lock, o.file, oneLine(err.Error()))
			return nil, nil
		}
	default:
		return nil, nil
	}
	return p, nil
}

func (p *pinger) use(s string) error {
	p.client = delivery.New(delivery.Options{
		Version: versionString(), Timeout: pingLimit / 2, Retries: 2, Backoff: pingLimit / 20, MaxWait: pingLimit / 2,
		NoIdempotencyKey: true, Concurrency: 1, Proxy: environmentProxy,
	}, delivery.NewGate(1))
	if err := p.client.Check(runner.Message{URL: s}); err != nil {
		return err
	}
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	query := u.Query()
	query.Set("rid", string(runner.NewToken()))
	u.RawQuery = query.Encode()
	p.url = u
	return nil
}

// keep is how much of the job's output is wanted.
func (p *pinger) keep() int {
	if p == nil || !p.body {
		return 0
	}
	return pingBody
}

// started sends the first ping while the job runs.
func (p *pinger) started() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*pingLimit)
	p.cancel, p.firstOver = cancel, make(chan struct{})
	go func() {
		defer close(p.firstOver)
		if err := p.send(ctx, "start", nil); err != "" {
			p.env.Log.Info("the ping at the start failed", "lock", p.lock, "error", err)
		}
	}()
}

// ended tells how a job that ran has ended. One that was skipped has not.
func (p *pinger) ended(res runner.Result, status Status) {
	if p == nil || res.Outcome == "" {
		return
	}
	word := "it succeeded"
	if res.Reason != "" {
		word = res.Reason
	}
	limit := pingLimit
	if res.Outcome == runner.RunStopped {
		limit = pingStopped
	}
	p.finish(limit, status, p.text(word, res.Output))
}

// failed tells that oncectl could not run the job.
func (p *pinger) failed(err error) {
	if p == nil {
		return
	}
	p.finish(pingLimit, exitStatus(err, true), p.text(err.Error(), nil))
}

// finish sends the last ping, after the first.
func (p *pinger) finish(limit time.Duration, status Status, text []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	path := ""
	if status != StatusOK {
		path = strconv.Itoa(int(status))
	}
	if p.firstOver != nil {
		select {
		case <-p.firstOver:
		case <-ctx.Done():
		}
	}
	if err := p.send(ctx, path, text); err != "" {
		fmt.Fprintf(p.env.Err, "oncectl: the ping of lock %q failed, which changes nothing else: %s\n", p.lock, err)
	}
}

// send returns why the ping failed, or nothing.
func (p *pinger) send(ctx context.Context, path string, text []byte) string {
	u := *p.url
	if path != "" {
		u.Path, u.RawPath = strings.TrimRight(u.Path, "/")+"/"+path, ""
	}
	res := p.client.Deliver(ctx, runner.Message{
		URL: u.String(), Body: text, Idempotent: true,
		Header: map[string][]string{"Content-Type": {"text/plain; charset=utf-8"}},
	})
	return res.LastError
}

// text is a ping's body: what happened to what, and the end of the output.
func (p *pinger) text(word string, output []byte) []byte {
	head := fmt.Sprintf("oncectl: lock %q on %s: %s\n", p.lock, thisHost().Name, oneLine(word))
	output = bytes.ToValidUTF8(output, []byte("\uFFFD")) // other text is not kept
	if over := len(head) + len(output) - pingBody; over > 0 && over < len(output) {
		output = bytes.ToValidUTF8(output[over:], nil) // a rune may have been cut
	}
	return append([]byte(head), output...)
}

// close waits for what is under way.
func (p *pinger) close() {
	if p == nil {
		return
	}
	if p.firstOver != nil {
		p.cancel()
		<-p.firstOver
	}
	p.client.Close()
}
