package cmd

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/delivery"
)

// httpOptions say how messages are delivered.
type httpOptions struct {
	delivery.Options
	retryOn     string
	caFile      string
	secretFile  string
	idempotent  bool
	noPayload   bool
	concurrency int
}

func (o *httpOptions) addFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.Timeout, "timeout", 30*time.Second, "time limit of one try")
	f.DurationVar(&o.ConnectTimeout, "connect-timeout", 5*time.Second, "time limit for name resolution, connecting and TLS")
	f.IntVar(&o.Retries, "retries", 5, "how often to try again")
	f.DurationVar(&o.Backoff, "backoff", time.Second, "first wait between tries, doubled each time")
	f.DurationVar(&o.BackoffMax, "backoff-max", time.Minute, "longest wait of that curve")
	f.DurationVar(&o.MaxWait, "max-wait", 5*time.Minute, "longest Retry-After to wait for")
	f.StringVar(&o.retryOn, "retry-on", "425,429", "`STATUSES` by which the receiver says that it did not process the request")
	f.BoolVar(&o.idempotent, "idempotent", false, "the receiver honours Idempotency-Key: try again also what may have been processed")
	f.BoolVar(&o.NoIdempotencyKey, "no-idempotency-key", false, "send no Idempotency-Key header")
	f.StringVar(&o.secretFile, "webhook-secret-file", "", "sign as Standard Webhooks says, with the secret in this `FILE`")
	f.StringVar(&o.caFile, "cacert", "", "trust the certificates in this `FILE` instead of the system's")
	f.IntVar(&o.concurrency, "concurrency", 4, "most requests in flight (in a run: 'oncectl run --concurrency')")
	f.BoolVar(&o.noPayload, "no-payload", false, "do not keep the body in the dead letter of a failure")
	f.DurationVar(&o.Grace, "kill-after", defaultKillAfter, "after SIGTERM, time for what is in flight")
}

// complete checks the flags and reads the files they name.
func (o *httpOptions) complete(env *Env) error {
	o.Version, o.Concurrency = versionString(), o.concurrency
	for name, d := range map[string]time.Duration{
		"timeout": o.Timeout, "connect-timeout": o.ConnectTimeout, "backoff": o.Backoff, "backoff-max": o.BackoffMax, "max-wait": o.MaxWait,
	} {
		if d <= 0 {
			return usagef("--%s must be more than zero", name)
		}
	}
	if o.Retries < 0 || o.concurrency < 1 || o.Grace < 0 {
		return usagef("--retries and --kill-after must not be negative, --concurrency must be at least 1")
	}
	var err error
	if o.RetryOn, err = parseStatuses(o.retryOn); err != nil {
		return err
	}
	if o.caFile != "" {
		if o.RootCAs, err = readCertificates(o.caFile); err != nil {
			return err
		}
	}
	if o.secretFile != "" {
		b, err := os.ReadFile(o.secretFile)
		if err != nil {
			return fmt.Errorf("reading --webhook-secret-file: %w", err)
		}
		if o.Signer, err = delivery.ParseSecrets(string(b)); err != nil {
			return fmt.Errorf("--webhook-secret-file %s: %w", o.secretFile, err)
		}
	}
	o.Proxy = environmentProxy
	return nil
}

// environmentProxy is the proxy that the environment names for u.
func environmentProxy(u *url.URL) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: u})
}

// parseStatuses reads "425,429"; an empty string is none.
func parseStatuses(s string) ([]int, error) {
	out := []int{}
	for _, field := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 300 || n > 599 {
			return nil, usagef("--retry-on takes statuses from 300 to 599, not %q", field)
		}
		out = append(out, n)
	}
	return out, nil
}

func readCertificates(file string) (*x509.CertPool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading --cacert: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("reading --cacert: %s holds no certificate in PEM form", file)
	}
	return pool, nil
}

// openSender is a Sender with what has to be closed after it.
type openSender struct {
	*runner.Sender
	client *delivery.Client
	store  claimStore
}

// open puts a sender together. Inside a run its claims, its bound and its pace
// are the run's.
func (o *httpOptions) open(ctx context.Context, env *Env, store *storeOptions) (*openSender, error) {
	return o.openWith(ctx, env, store.openClaims)
}

// openWith puts a sender together whose claims are in the store that is opened.
func (o *httpOptions) openWith(ctx context.Context, env *Env, open func(context.Context, *Env) (claimStore, error)) (*openSender, error) {
	if err := o.complete(env); err != nil {
		return nil, err
	}
	claims, err := open(ctx, env)
	if err != nil {
		return nil, err
	}
	s := &openSender{store: claims, client: delivery.New(o.Options, openGate(claims, o.concurrency))}
	s.Sender = &runner.Sender{Store: claims, HTTP: s.client, Owner: ownerName(os.Getpid()), Token: runner.NewToken(), Log: env.Log}
	if sweeper, ok := claims.(runner.Sweeper); ok {
		if _, err := sweeper.Sweep(ctx); err != nil {
			s.Close()
			return nil, fmt.Errorf("looking for sends that were never finished: %w", err)
		}
	}
	return s, nil
}

// Close closes the connections to receivers and store.
func (s *openSender) Close() {
	s.client.Close()
	_ = s.store.Close() // nothing is left to be written
}
