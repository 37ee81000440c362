// Command receiver is a web server for scripts/bench-send: it answers each
// request after a latency, at once by default, and prints its URL when it is
// ready. On SIGTERM it prints how many requests came, how many were in flight at
// most and the seconds that they took together, and ends.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	latency := flag.Duration("latency", 0, "time that each request takes")
	flag.Parse()
	if err := serve(*latency); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}

func serve(latency time.Duration) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var came, flying, most, took atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		came.Add(1)
		now := flying.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		_, _ = io.Copy(io.Discard, r.Body) // a sender that is gone is none of ours
		time.Sleep(latency)
		flying.Add(-1)
		took.Add(int64(time.Since(start)))
		w.WriteHeader(http.StatusNoContent)
	}
	fmt.Printf("http://%s/\n", l.Addr())
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(l, http.HandlerFunc(handler)) }()
	select {
	case err := <-failed:
		return err
	case <-end:
		fmt.Printf("%d requests, %d at once, %.3f s\n", came.Load(), most.Load(), time.Duration(took.Load()).Seconds())
		return nil
	}
}
