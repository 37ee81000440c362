// Command outbox measures how an outbox on PostgreSQL is published. It prints a
// name and a number on each line.
//
//	outbox [-rows N] [-keys] fill        nothing: the rows are there, and wait
//	outbox [-rows N] [-keys] rate        rows a second: a bare loop, the publisher, a transaction open elsewhere
//	outbox [-rows N] -url URL send       rows a second: a bare loop that sends to URL
//	outbox [-rows N] -every D latency CMD…  ms from commit to request; CMD publishes to the URL that is added
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// world is what all the measurements share.
type world struct {
	database, schema string
	rows             int
	keys             bool
	url              string
	every            time.Duration
	conn             *pgx.Conn
}

func main() {
	w := world{database: os.Getenv("ONCECTL_DATABASE_URL"), schema: os.Getenv("ONCECTL_SCHEMA")}
	flag.IntVar(&w.rows, "rows", 20000, "how many")
	flag.BoolVar(&w.keys, "keys", false, "the rows have 50 keys")
	flag.StringVar(&w.url, "url", "", "where the bare loop sends to")
	flag.DurationVar(&w.every, "every", 200*time.Millisecond, "a row each, on average")
	flag.Parse()
	if err := w.measure(context.Background(), flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

func (w *world) measure(ctx context.Context, what string) (err error) {
	if w.conn, err = pgx.Connect(ctx, w.database); err != nil {
		return err
	}
	defer w.conn.Close(context.Background())
	switch what {
	case "fill":
		return w.fill(ctx)
	case "rate":
		return w.rate(ctx)
	case "send":
		return w.send(ctx)
	case "latency":
		return w.latency(ctx, flag.Args()[1:])
	}
	return fmt.Errorf("unknown: %q", what)
}

// fill makes an outbox of nothing but rows that wait.
func (w *world) fill(ctx context.Context) error {
	key := "null"
	if w.keys {
		key = "'key ' || g % 50"
	}
	_, err := w.conn.Exec(ctx, fmt.Sprintf(`truncate %[1]s.outbox; insert into %[1]s.outbox (topic, key, payload)
		select 'orders', %[2]s, '{"n": 1}' from generate_series(1, %[3]d) g; analyze %[1]s.outbox`, w.schema, key, w.rows))
	return err
}
