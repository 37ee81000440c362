package pgstore

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/oncectl/oncectl/runner"
)

// fakeServer speaks as much of PostgreSQL's protocol as to be refused: it tells
// these parameters at the start, and answers each statement with row.
func fakeServer(t *testing.T, parameters map[string]string, row [][]byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(pgproto3.NewBackend(c, c), parameters, row)
			}()
		}
	}()
	return "postgres://someone@" + l.Addr().String() + "/postgres?sslmode=disable"
}

// fakePID is the process id that the fake's connections are told.
const fakePID = 4711

// answer ends when its connection does.
func answer(b *pgproto3.Backend, parameters map[string]string, row [][]byte) {
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for name, value := range parameters {
		b.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	b.Send(&pgproto3.BackendKeyData{ProcessID: fakePID, SecretKey: []byte("none")})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		msg, err := b.Receive()
		if err != nil {
			return
		}
		switch msg.(type) {
		case *pgproto3.Parse:
			b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Bind:
			b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Describe:
			b.Send(&pgproto3.RowDescription{Fields: make([]pgproto3.FieldDescription, len(row))})
		case *pgproto3.Execute:
			b.Send(&pgproto3.DataRow{Values: row})
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		case *pgproto3.Sync:
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		case *pgproto3.Terminate:
			return
		}
	}
}

// locked is an answer to the statement that takes the lock, and gives it.
func locked(version, number string) [][]byte {
	row := make([][]byte, colUpSince+1)
	for i, v := range map[int]string{
		colDirect: "t", colRecovery: "f", colVersion: version, colVersionNum: number, colLocked: "t", colNow: "0", colUpSince: "0",
	} {
		row[i] = []byte(v)
	}
	return row
}

func TestServer_WhenItsLocksDoNotHold_IsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parameters map[string]string
		row        [][]byte
		why        string
	}{
		"CockroachDB, as it tells at the start": {
			map[string]string{"crdb_version": "CockroachDB CCL v23.1.11", "server_version": "13.0.0"},
			locked("CockroachDB CCL v23.1.11", "130000"), "CockroachDB",
		},
		"CockroachDB, as version() tells": {
			map[string]string{"server_version": "16.0.0"}, locked("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)", "160000"), "CockroachDB",
		},
		"too old, as it tells at the start": {
			map[string]string{"server_version": "13.14 (Debian 13.14-0+deb11u1)"}, locked("PostgreSQL 13.14", "130014"), "needs 14 or later",
		},
		"too old, as it tells when asked": {nil, locked("PostgreSQL 9.6.24", "90624"), "needs 14 or later"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, Config{ConnString: fakeServer(t, c.parameters, c.row), StoreWait: time.Second})
			_, err := s.TryLock(t.Context(), nightly("oncectl"))
			wantErr(t, "TryLock", err, runner.ErrRefused)
			if !strings.Contains(err.Error(), c.why) {
				t.Errorf("TryLock() = %v, want a word on %q", err, c.why)
			}
		})
	}
	t.Run("and the fake itself is not what is refused", func(t *testing.T) {
		s := openWith(t, Config{ConnString: fakeServer(t, map[string]string{"server_version": "14.0"}, locked("PostgreSQL 14.0", "140000")), StoreWait: time.Second})
		h, err := s.TryLock(t.Context(), nightly("oncectl"))
		if err != nil {
			t.Fatalf("TryLock() = %v", err)
		}
		_ = h.Release(t.Context())
	})
}
