package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// arrivals tells when the request for each row came first.
type arrivals struct {
	mu   sync.Mutex
	at   map[int]time.Time
	came chan int
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	var row struct{ N int }
	if err := json.NewDecoder(r.Body).Decode(&row); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	_, again := a.at[row.N]
	if !again {
		a.at[row.N] = now
	}
	a.mu.Unlock()
	if !again {
		a.came <- row.N
	}
	w.WriteHeader(http.StatusNoContent)
}

// latency inserts a row now and then while command publishes. The first rows
// only show that it does, and do not count.
func (w *world) latency(ctx context.Context, command []string) error {
	const warmup = 3
	w.rows += warmup
	a := &arrivals{at: map[int]time.Time{}, came: make(chan int, w.rows)}
	srv := httptest.NewServer(a)
	defer srv.Close()
	if _, err := w.conn.Exec(ctx, "truncate "+w.schema+".outbox"); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, command[0], append(command[1:], "--url", srv.URL)...)
	var said bytes.Buffer // it may say that it was interrupted
	c.Stderr = &said
	if err := c.Start(); err != nil {
		return err
	}
	defer func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
	}()
	insert := fmt.Sprintf(`insert into %s.outbox (topic, payload) values ('orders', jsonb_build_object('n', $1::int))`, w.schema)
	committed := make([]time.Time, w.rows)
	for n := range w.rows {
		if _, err := w.conn.Exec(ctx, insert, n); err != nil {
			return err
		}
		committed[n] = time.Now()
		// Never in step with whoever polls.
		time.Sleep(w.every/2 + rand.N(w.every))
	}
	for range w.rows {
		select {
		case <-a.came:
		case <-time.After(time.Minute):
			return fmt.Errorf("not all of %d rows came: %s", w.rows, &said)
		}
	}
	var spent []time.Duration
	for n, at := range committed[warmup:] {
		spent = append(spent, max(0, a.at[n+warmup].Sub(at)))
	}
	slices.Sort(spent)
	ms := func(i int) float64 { return float64(spent[i]) / float64(time.Millisecond) }
	fmt.Printf("median %.1f\np99 %.1f\n", ms(len(spent)/2), ms((len(spent)*99-1)/100))
	return nil
}
