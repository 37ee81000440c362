//go:build bench

package cmd_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/outbox"
	"github.com/oncectl/oncectl/runner/pgstore"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// rateRows is how many rows a rate is measured with.
const rateRows = 20000

// The bare loop is the least that any publisher must do: lease a batch, do
// nothing, mark it. What a publisher does beyond that must not cost more than
// that again, also while a transaction that is open elsewhere keeps the server
// from clearing away what was sent. Both are measured one after the other, on
// the same machine and with the same batches; what else runs there shows in
// both.
func TestOutbox_WhenItDrains_ItsRateIsThatOfABareLoop(t *testing.T) {
	for name, key := range map[string]string{"without keys": "null", "with 50 keys": "'key ' || g % 50"} {
		t.Run(name, func(t *testing.T) {
			url, schema := pgtest.Schema(t)
			s := openRate(t, url, schema)
			fill := func() {
				pgtest.Exec(t, url, fmt.Sprintf(`truncate %[1]s.outbox`, schema), fmt.Sprintf(`insert into %s.outbox (topic, key, payload)
					select 'orders', %s, '{"n": 1}' from generate_series(1, %d) g`, schema, key, rateRows))
			}
			fill()
			bare := bareLoop(t, url, schema)
			fill()
			own := drainAll(t, s)
			fill()
			release := holdOpen(t, url, schema)
			held := drainAll(t, s)
			release()
			t.Logf("rows a second: bare loop %.0f, publisher %.0f, with a transaction open elsewhere %.0f", bare, own, held)
			if own < bare/2 {
				t.Errorf("%.0f rows a second, the bare loop does %.0f", own, bare)
			}
			if held < own/2 {
				t.Errorf("%.0f rows a second while a transaction is open elsewhere, %.0f without", held, own)
			}
		})
	}
}

func openRate(t *testing.T, url, schema string) *pgstore.Store {
	s, err := pgstore.Open(pgstore.Config{ConnString: url, Schema: schema, StoreWait: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.ApplySchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// rateBatch is the batch of both, and the publisher's concurrency: it marks as
// many at a time as were in flight.
const rateBatch = 100

// bareLoop drains the outbox and returns the rows a second.
func bareLoop(t *testing.T, url, schema string) float64 {
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	// As oncectl's own transactions: what a server is told to do quickly and
	// perhaps lose says nothing about the two.
	if _, err := conn.Exec(t.Context(), "set synchronous_commit = on"); err != nil {
		t.Fatal(err)
	}
	began, n := time.Now(), 0
	for {
		rows, _ := conn.Query(t.Context(), fmt.Sprintf(`update %[1]s.outbox set leased_until = now() + interval '30 s' where id in (
			select id from %[1]s.outbox where sent_at is null and failed_at is null and (leased_until is null or leased_until <= now())
			order by id limit %[2]d for update skip locked) returning id`, schema, rateBatch))
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) == 0 {
			break
		}
		if _, err := conn.Exec(t.Context(), fmt.Sprintf(`update %s.outbox set sent_at = now() where id = any($1)`, schema), ids); err != nil {
			t.Fatal(err)
		}
		n += len(ids)
	}
	if n != rateRows {
		t.Fatalf("the bare loop had %d rows", n)
	}
	return rateRows / time.Since(began).Seconds()
}

// nothing publishes by doing nothing.
type nothing struct{}

func (nothing) Publish(context.Context, runner.OutboxRow) runner.DeliveryResult {
	return runner.DeliveryResult{Outcome: runner.Delivered, Attempts: 1}
}

func drainAll(t *testing.T, s *pgstore.Store) float64 {
	began := time.Now()
	d := &outbox.Drain{
		Options: outbox.Options{Batch: 2 * rateBatch, Concurrency: rateBatch, Retries: 5, Backoff: time.Second, BackoffMax: time.Minute, MaxWait: time.Minute},
		Store:   s, Publisher: nothing{}, Token: runner.NewToken(), Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 },
	}
	res, err := d.Run(t.Context())
	if err != nil || res.Sent != rateRows {
		t.Fatalf("Run() = %+v, %v", res, err)
	}
	return rateRows / time.Since(began).Seconds()
}

// holdOpen opens a transaction with a snapshot and leaves it open.
func holdOpen(t *testing.T, url, schema string) (release func()) {
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select count(*) from "+schema+".outbox"); err != nil {
		t.Fatal(err)
	}
	return func() { conn.Close(context.Background()) }
}
