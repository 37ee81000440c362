package pgstore

import (
	"database/sql"
	"net/url"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/oncectl/oncectl/runner/storetest"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// harness runs the conformance suite in a database of its own, since the suite's
// locks have the same keys wherever it runs; each store has a schema of its own.
type harness struct {
	url string // of the server itself
	via string // of what the stores are given
}

type place struct {
	url, schema string
	via         string
	db          *sql.DB
}

func (h harness) Fresh(t testing.TB) storetest.Place {
	_, schema := pgtest.Schema(t)
	return &place{url: h.url, via: h.via, schema: schema}
}

func (p *place) Open(t testing.TB) storetest.Store {
	s, err := Open(Config{ConnString: p.via, Schema: p.schema, StoreWait: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (p *place) DB(t testing.TB) *sql.DB {
	if p.db != nil {
		return p.db
	}
	u, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", p.schema)
	q.Set("timezone", "UTC")
	u.RawQuery = q.Encode()
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	p.db = db
	return db
}

func TestSuite(t *testing.T) {
	t.Parallel()
	server, name := pgtest.Schema(t)
	url := databaseWith(t, server, name, "")
	storetest.Run(t, harness{url, url})
}

func TestSuite_ThroughPgBouncer(t *testing.T) {
	t.Parallel()
	server, name := pgtest.Schema(t)
	url := databaseWith(t, server, name, "")
	storetest.Run(t, harness{url, pgtest.Bouncer(t, url, "transaction", "default_pool_size = 60")})
}
