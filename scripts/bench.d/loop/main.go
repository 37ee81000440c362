// Command loop sends messages as tutorials do: some at a time, each again after
// a refusal's Retry-After, up to five tries. It claims nothing and keeps
// nothing, and prints how many were delivered and given up.
//
// What waits keeps its place among those under way, as a retry inside of a
// limiter does; with -requeue it makes room for others, as in a queue of jobs.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const tries = 5

func main() {
	url := flag.String("url", "", "where to send them")
	n := flag.Int("n", 1000, "how many")
	concurrency := flag.Int("concurrency", 4, "how many at a time")
	requeue := flag.Bool("requeue", false, "what waits makes room for others")
	flag.Parse()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *concurrency}, Timeout: 30 * time.Second}
	var delivered atomic.Int64
	var all sync.WaitGroup
	places := make(chan bool, *concurrency)
	for id := range *n {
		places <- true
		all.Go(func() {
			wait := time.Sleep
			if *requeue {
				wait = func(d time.Duration) {
					<-places
					time.Sleep(d)
					places <- true
				}
			}
			if send(client, *url, "loop/"+strconv.Itoa(id), wait) {
				delivered.Add(1)
			}
			<-places
		})
	}
	all.Wait()
	fmt.Printf("%d delivered, %d given up\n", delivered.Load(), int64(*n)-delivered.Load())
}

func send(client *http.Client, url, id string, wait func(time.Duration)) bool {
	for range tries {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("x"))
		if err != nil {
			fmt.Fprintln(os.Stderr, "loop:", err)
			os.Exit(2)
		}
		req.Header.Set("Idempotency-Key", id)
		res, err := client.Do(req)
		if err != nil {
			wait(time.Second)
			continue
		}
		res.Body.Close()
		if res.StatusCode < 300 {
			return true
		}
		seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if err != nil {
			seconds = 1
		}
		wait(time.Duration(seconds) * time.Second)
	}
	return false
}
