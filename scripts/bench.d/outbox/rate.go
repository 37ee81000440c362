package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/outbox"
	"github.com/oncectl/oncectl/runner/pgstore"
)

// batch is that of the bare loop, and the publisher's concurrency: it marks as
// many at a time as were in flight.
const batch = 100

// The bare loop is the least that any publisher must do: lease a batch, do
// nothing, mark it. The publisher is measured with the same batches, and once
// more while a transaction that is open elsewhere keeps the server from clearing
// away what was sent.
func (w *world) rate(ctx context.Context) error {
	s, err := pgstore.Open(pgstore.Config{ConnString: w.database, Schema: w.schema, StoreWait: 10 * time.Second})
	if err != nil {
		return err
	}
	defer s.Close()
	drain := func(ctx context.Context) error { return w.drain(ctx, s) }
	bare := func(ctx context.Context) error { return w.loop(ctx, func([]int64) error { return nil }) }
	if err := w.timed(ctx, "bare", bare); err != nil {
		return err
	}
	if err := w.timed(ctx, "publisher", drain); err != nil {
		return err
	}
	release, err := w.holdOpen(ctx)
	if err != nil {
		return err
	}
	defer release()
	return w.timed(ctx, "held", drain)
}

// send is the bare loop with a request for each row, four at a time.
func (w *world) send(ctx context.Context) error {
	const concurrency = 4
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: concurrency}}
	post := func(id int64) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader([]byte(`{"n": 1}`)))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", fmt.Sprint("outbox-", id))
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.Body.Close()
	}
	return w.timed(ctx, "bare", func(ctx context.Context) error {
		return w.loop(ctx, func(ids []int64) error {
			var all sync.WaitGroup
			var failed [concurrency]error
			for i := range concurrency {
				all.Go(func() {
					for n := i; n < len(ids) && failed[i] == nil; n += concurrency {
						failed[i] = post(ids[n])
					}
				})
			}
			all.Wait()
			for _, err := range failed {
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// timed fills the outbox, and prints the rows a second that f gets through.
func (w *world) timed(ctx context.Context, name string, f func(context.Context) error) error {
	if err := w.fill(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := f(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("%s %.1f\n", name, float64(w.rows)/time.Since(began).Seconds())
	return nil
}

func (w *world) loop(ctx context.Context, publish func([]int64) error) error {
	// As oncectl's own transactions: what a server is told to do quickly and
	// perhaps lose says nothing about the two.
	if _, err := w.conn.Exec(ctx, "set synchronous_commit = on"); err != nil {
		return err
	}
	lease := fmt.Sprintf(`update %[1]s.outbox set leased_until = now() + interval '30 s' where id in (
		select id from %[1]s.outbox where sent_at is null and failed_at is null and (leased_until is null or leased_until <= now())
		order by id limit %[2]d for update skip locked) returning id`, w.schema, batch)
	mark := fmt.Sprintf(`update %s.outbox set sent_at = now() where id = any($1)`, w.schema)
	for n := 0; ; {
		rows, _ := w.conn.Query(ctx, lease)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return w.all(n)
		}
		if err := publish(ids); err != nil {
			return err
		}
		if _, err := w.conn.Exec(ctx, mark, ids); err != nil {
			return err
		}
		n += len(ids)
	}
}

func (w *world) all(n int) error {
	if n != w.rows {
		return fmt.Errorf("%d rows were published, not %d", n, w.rows)
	}
	return nil
}

// nothing publishes by doing nothing.
type nothing struct{}

func (nothing) Publish(context.Context, runner.OutboxRow) runner.DeliveryResult {
	return runner.DeliveryResult{Outcome: runner.Delivered, Attempts: 1}
}

func (w *world) drain(ctx context.Context, s *pgstore.Store) error {
	d := &outbox.Drain{
		Options: outbox.Options{Batch: 2 * batch, Concurrency: batch, Retries: 5, Backoff: time.Second, BackoffMax: time.Minute, MaxWait: time.Minute},
		Store:   s, Publisher: nothing{}, Token: runner.NewToken(), Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 },
	}
	res, err := d.Run(ctx)
	if err != nil {
		return err
	}
	return w.all(res.Sent)
}

// holdOpen opens a transaction and leaves it open, with a snapshot of another
// table, since fill empties the outbox.
func (w *world) holdOpen(ctx context.Context) (release func(), err error) {
	conn, err := pgx.Connect(ctx, w.database)
	if err != nil {
		return nil, err
	}
	release = func() { conn.Close(context.Background()) }
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		_, err = tx.Exec(ctx, "select count(*) from "+w.schema+".fences")
	}
	if err != nil {
		release()
	}
	return release, err
}
