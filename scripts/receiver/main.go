// Command receiver is a web server for scripts: it answers each request after a
// latency, at once by default, and prints its URL when it is ready. With -cert it
// speaks TLS, by a certificate that is its own authority. With -rate it takes so
// many requests a second, and answers 429 with Retry-After: 1 to the others. On
// SIGTERM it prints how many requests came, how many were in flight at most and
// the seconds that they took together, with -rate also how many it refused and
// how many it took twice, and ends.
package main

import (
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	latency := flag.Duration("latency", 0, "time that each request takes")
	cert := flag.String("cert", "", "speak TLS, and write the certificate to trust to this file")
	rate := flag.Float64("rate", 0, "requests to take a second, any number by default")
	flag.Parse()
	if err := serve(*latency, *cert, newBucket(*rate)); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}

func serve(latency time.Duration, cert string, bucket *bucket) error {
	var came, flying, most, took atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		came.Add(1)
		now := flying.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		_, _ = io.Copy(io.Discard, r.Body) // a sender that is gone is none of ours
		admitted := bucket.admit(r)
		if admitted { // a limiter stands in front, and refuses at once
			time.Sleep(latency)
		}
		flying.Add(-1)
		took.Add(int64(time.Since(start)))
		if !admitted {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(handler))
	if cert == "" {
		srv.Start()
	} else {
		srv.StartTLS()
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
		if err := os.WriteFile(cert, block, 0o644); err != nil {
			return err
		}
	}
	fmt.Println(srv.URL + "/")
	<-end
	fmt.Printf("%d requests, %d at once, %.3f s", came.Load(), most.Load(), time.Duration(took.Load()).Seconds())
	if bucket != nil {
		fmt.Printf(", %d refused, %d twice", bucket.refused, bucket.repeated)
	}
	fmt.Println()
	return nil
}
