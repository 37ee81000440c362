package pgstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// statement is one SQL statement with its parameters: nil, string, int, int64,
// bool, []byte, time.Time or []string.
type statement struct {
	sql  string
	args []any
}

// row is a row of text values; nil is NULL.
type row [][]byte

func (r row) null(i int) bool    { return r[i] == nil }
func (r row) text(i int) string  { return string(r[i]) }
func (r row) bool(i int) bool    { return string(r[i]) == "t" }
func (r row) number(i int) int64 { n, _ := strconv.ParseInt(string(r[i]), 10, 64); return n }
func (r row) time(i int) time.Time {
	if r[i] == nil {
		return time.Time{}
	}
	return time.UnixMicro(r.number(i))
}

// begin opens a transaction whose isolation does not depend on the role's or
// the database's settings.
const begin = `begin isolation level read committed read write`

// settings overrides, for one transaction, what a role, a database or a server
// may have set against it. $1 is lock_timeout. An asynchronous commit becomes a
// synchronous one, since a claim must survive a crash of the server before its
// side effect begins; a stricter value stays.
const settings = `select
	set_config('statement_timeout', '0', true),
	set_config('lock_timeout', $1, true),
	set_config('idle_in_transaction_session_timeout', '0', true),
	case when current_setting('transaction_timeout', true) is not null
		then set_config('transaction_timeout', '0', true) end,
	case when current_setting('synchronous_commit') = 'off'
		then set_config('synchronous_commit', 'on', true) end`

// beginning is how each transaction begins.
func beginning(lockTimeout time.Duration) []statement {
	return []statement{{sql: begin}, {sql: settings, args: []any{formatKey(lockTimeout.Milliseconds())}}}
}

// transact runs statements in one transaction and one round trip, each lock
// wait bounded by lockTimeout (0: not). It returns the rows of each statement.
func transact(ctx context.Context, c *pgconn.PgConn, lockTimeout time.Duration, stmts ...statement) ([][]row, error) {
	all := append(beginning(lockTimeout), stmts...)
	all = append(all, statement{sql: "commit"})
	results, err := pipeline(ctx, c, all...)
	if err != nil {
		rollback(c)
		return nil, err
	}
	return results[2 : len(results)-1], nil
}

// rollback ends a failed transaction, so that the connection can be used again.
func rollback(c *pgconn.PgConn) {
	if c.IsClosed() || c.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := c.Exec(ctx, "rollback").Close(); err != nil {
		closeConn(c)
	}
}

// pipeline sends statements with one Sync at their end: one round trip, and one
// transaction unless they say otherwise.
func pipeline(ctx context.Context, c *pgconn.PgConn, stmts ...statement) ([][]row, error) {
	batch := &pgconn.Batch{}
	for _, st := range stmts {
		batch.ExecParams(st.sql, encode(st.args), nil, nil, nil)
	}
	results := make([][]row, 0, len(stmts))
	mrr := c.ExecBatch(ctx, batch)
	for mrr.NextResult() {
		res := mrr.ResultReader().Read()
		if res.Err != nil {
			break
		}
		rows := make([]row, len(res.Rows))
		for i, r := range res.Rows {
			rows[i] = row(r)
		}
		results = append(results, rows)
	}
	if err := mrr.Close(); err != nil {
		if unsure, ok := ctx.Value(unsureKey{}).(*bool); ok && isTransient(err) {
			*unsure = true
		}
		return nil, err
	}
	if len(results) != len(stmts) {
		return nil, fmt.Errorf("the server answered %d of %d statements", len(results), len(stmts))
	}
	return results, nil
}

// unsureKey is the context's key of a *bool that becomes true when an answer was
// lost: what is now tried again may have been carried out.
type unsureKey struct{}

// encode writes parameters in PostgreSQL's text format.
func encode(args []any) [][]byte {
	out := make([][]byte, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case nil:
		case string:
			out[i] = []byte(v)
		case int:
			out[i] = strconv.AppendInt(nil, int64(v), 10)
		case int64:
			out[i] = strconv.AppendInt(nil, v, 10)
		case bool:
			out[i] = strconv.AppendBool(nil, v)
		case []byte:
			if v != nil {
				out[i] = append([]byte(`\x`), hex.AppendEncode(nil, v)...)
			}
		case time.Time:
			if !v.IsZero() {
				out[i] = []byte(v.UTC().Format(time.RFC3339Nano))
			}
		case []string:
			out[i] = encodeArray(v)
		default:
			panic(fmt.Sprintf("pgstore: a parameter of type %T", arg))
		}
	}
	return out
}

// encodeArray writes a text[] (PostgreSQL manual, "Array Input and Output
// Syntax"): every element quoted, with backslash and quote escaped.
func encodeArray(values []string) []byte {
	size := 2
	for _, v := range values {
		size += len(v) + 3
	}
	b := append(make([]byte, 0, size), '{')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		if strings.ContainsAny(v, `"\`) {
			v = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v)
		}
		b = append(b, v...)
		b = append(b, '"')
	}
	return append(b, '}')
}

// orNull is NULL for an empty string.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func decodeHex(b []byte) ([]byte, error) {
	out := make([]byte, hex.DecodedLen(len(b)))
	_, err := hex.Decode(out, b)
	return out, err
}
