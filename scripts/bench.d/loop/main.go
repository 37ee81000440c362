// Command loop sends messages as tutorials do: some at a time, each again after
// a refusal's Retry-After, up to five tries. It claims nothing and keeps
// nothing, and prints how many were delivered and given up.
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
	flag.Parse()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *concurrency}, Timeout: 30 * time.Second}
	var delivered atomic.Int64
	var all sync.WaitGroup
	ids := make(chan int)
	for range *concurrency {
		all.Go(func() {
			for id := range ids {
				if send(client, *url, "loop/"+strconv.Itoa(id)) {
					delivered.Add(1)
				}
			}
		})
	}
	for id := range *n {
		ids <- id
	}
	close(ids)
	all.Wait()
	fmt.Printf("%d delivered, %d given up\n", delivered.Load(), int64(*n)-delivered.Load())
}

func send(client *http.Client, url, id string) bool {
	for range tries {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("x"))
		if err != nil {
			fmt.Fprintln(os.Stderr, "loop:", err)
			os.Exit(2)
		}
		req.Header.Set("Idempotency-Key", id)
		res, err := client.Do(req)
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		res.Body.Close()
		if res.StatusCode < 300 {
			return true
		}
		wait, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if err != nil {
			wait = 1
		}
		time.Sleep(time.Duration(wait) * time.Second)
	}
	return false
}
