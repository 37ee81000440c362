package delivery

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"time"
)

const (
	// idleTimeout closes an unused connection before its server does, so that
	// no request meets a closing connection and ends in doubt: the shortest
	// common default is gunicorn's 2 s (Node and Apache 5 s, nginx 75 s).
	idleTimeout = 1900 * time.Millisecond

	// answerLimit is how much of an answer's body is read, and of its header.
	answerLimit = 64 << 10
)

// ProxyFunc tells the proxy for a URL, nil for none.
type ProxyFunc func(*url.URL) (*url.URL, error)

// newTransport speaks HTTP/1.1 only. HTTP/2 has repeats of its own (GOAWAY,
// REFUSED_STREAM) below every hook, and one connection for all requests to a
// host, whose end would leave all of them in doubt.
func newTransport(o Options) *http.Transport {
	config := &tls.Config{RootCAs: o.RootCAs, NextProtos: []string{"http/1.1"}}
	d := &dialer{tls: config, timeout: o.ConnectTimeout}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  proxy(o.Proxy),
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		TLSClientConfig:        config, // for connections through a proxy
		TLSHandshakeTimeout:    o.ConnectTimeout,
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConns:           max(100, 2*o.Concurrency),
		MaxIdleConnsPerHost:    o.Concurrency,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: answerLimit,
	}
}

// errProxy stands for the error of a proxy's address, which may name its
// password.
var errProxy = errors.New("the proxy's address cannot be parsed: check the proxy variables")

func proxy(f ProxyFunc) func(*http.Request) (*url.URL, error) {
	if f == nil {
		return nil
	}
	return func(req *http.Request) (*url.URL, error) {
		u, err := f(req.URL)
		if err != nil {
			return nil, errProxy
		}
		return u, nil
	}
}

// Options say how a Client delivers. The zero value of a field means its
// default, except where noted.
type Options struct {
	Version string // for User-Agent: oncectl/VERSION

	Timeout        time.Duration // of one try, from connecting to the end of the answer; 30 s
	ConnectTimeout time.Duration // of name resolution, connecting and TLS; 5 s

	Retries    int           // after the first try; 0 means none
	Backoff    time.Duration // the first wait, doubled each time; 1 s
	BackoffMax time.Duration // the longest wait of that curve; 60 s
	// MaxWait is the longest Retry-After that is waited for; 5 min.
	MaxWait time.Duration
	// RetryOn are the statuses by which the receiver says that it did not
	// process the request; nil means 425 and 429.
	RetryOn []int

	NoIdempotencyKey bool
	Signer           *Signer // nil: not signed

	Proxy   ProxyFunc
	RootCAs *x509.CertPool // nil: the system's

	// Concurrency is how many connections to a host are kept; 4.
	Concurrency int
	// Grace is how long a request in flight may go on once the context of its
	// delivery has ended; 0 cuts it at once.
	Grace time.Duration
}

// withDefaults fills what was left open.
func (o Options) withDefaults() Options {
	setDefault(&o.Timeout, 30*time.Second)
	setDefault(&o.ConnectTimeout, 5*time.Second)
	setDefault(&o.Backoff, time.Second)
	setDefault(&o.BackoffMax, time.Minute)
	setDefault(&o.MaxWait, 5*time.Minute)
	if o.RetryOn == nil {
		o.RetryOn = []int{http.StatusTooEarly, http.StatusTooManyRequests}
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	return o
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}
