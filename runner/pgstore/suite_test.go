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

// harness runs the conformance suite on a server, each store in a schema of its
// own.
type harness struct {
	through func(t testing.TB, url string) string // a pooler; nil: direct
}

type place struct {
	url, schema string
	via         string
	db          *sql.DB
}

func (h harness) Fresh(t testing.TB) storetest.Place {
	url, schema := pgtest.Schema(t)
	p := &place{url: url, via: url, schema: schema}
	if h.through != nil {
		p.via = h.through(t, url)
	}
	return p
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
	pgtest.Schema(t)
	storetest.Run(t, harness{})
}

func TestSuite_ThroughPgBouncer(t *testing.T) {
	t.Parallel()
	url, _ := pgtest.Schema(t)
	via := pgtest.Bouncer(t, url, "transaction", "default_pool_size = 60")
	storetest.Run(t, harness{through: func(testing.TB, string) string { return via }})
}
