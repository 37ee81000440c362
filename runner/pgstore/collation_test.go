package pgstore

import (
	"fmt"
	"testing"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// The database's collation takes all of these for one; ids are bytes.
var alike = []string{"a", "A", "á", "a\u0301", "Á", "ａ", "a\u200b"}

func TestCollation_WhenTheDatabaseTakesIDsForOne_TheyAreCompared(t *testing.T) {
	t.Parallel()
	server, name := pgtest.Schema(t)
	if len(pgtest.Query(t, server, "select collname from pg_collation where collprovider = 'i' limit 1")) == 0 {
		pgtest.Skip(t, "a PostgreSQL with ICU")
	}
	how := "template template0 locale_provider icu icu_locale 'und-u-ks-level1' locale 'C.UTF-8'"
	if pgtest.Query(t, server, "select (current_setting('server_version_num')::int >= 150000)::text")[0] != "true" {
		pgtest.Skip(t, "PostgreSQL 15 (databases with an ICU collation)")
	}
	url := databaseWith(t, server, name, how)
	s := open(t, url, name)
	// One at a time and all at once take different ways to the table.
	for _, id := range alike {
		wantWon(t, s, claimOf(nil, id), true)
	}
	for _, id := range alike {
		wantWon(t, s, claimOf(nil, id), false)
	}
	prefixed := make([]string, len(alike))
	for i, id := range alike {
		prefixed[i] = id + "/x"
	}
	batch := claimOf(nil, prefixed...)
	won, err := s.Claim(t.Context(), batch)
	if err != nil {
		t.Fatalf("Claim() = %v", err)
	}
	for i, w := range won {
		if !w {
			t.Errorf("%q was not won beside ids that look like it", prefixed[i])
		}
	}
	eachIsItself(t, s, prefixed)
	// Of all of them one is given back, and no other.
	if got, err := s.GiveBack(t.Context(), runner.GiveBackRequest{IDs: []runner.EventID{"A/x"}}); err != nil || got[0] != runner.Settled {
		t.Errorf("GiveBack() = %v, %v", got, err)
	}
	left := pgtest.Query(t, url, fmt.Sprintf("select count(*)::text from %s.processed_events", name))[0]
	if want := fmt.Sprint(2*len(alike) - 1); left != want {
		t.Errorf("%s claims are left, want %s", left, want)
	}
}

// eachIsItself looks each claim up by its id and by its id as a prefix.
func eachIsItself(t *testing.T, s *Store, ids []string) {
	t.Helper()
	for _, id := range ids {
		got, err := s.Lookup(t.Context(), []runner.EventID{runner.EventID(id)})
		if err != nil || len(got) != 1 || string(got[0].ID) != id {
			t.Errorf("Lookup(%q) = %v, %v", id, got, err)
		}
		n := 0
		err = s.EachClaim(t.Context(), runner.ClaimFilter{Prefix: id}, func(c runner.Claim) error {
			n++
			if string(c.ID) != id {
				t.Errorf("the prefix %q finds %q", id, c.ID)
			}
			return nil
		})
		if err != nil || n != 1 {
			t.Errorf("the prefix %q finds %d claims, %v", id, n, err)
		}
	}
}

// An index of ours must not take bytes for one another either, where another
// program compares with a nondeterministic collation.
func TestCollation_WhenTheSchemaIsMade_IDsHaveTheirs(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	wantWon(t, open(t, url, schema), claimOf(nil, "a"), true)
	got := pgtest.Query(t, url, fmt.Sprintf(`select c.relname || '.' || a.attname from pg_attribute a
		join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
		join pg_collation k on k.oid = a.attcollation
		where n.nspname = %s and a.attname = 'event_id' and c.relkind = 'r' and k.collname <> 'C'`, quote(schema)))
	if len(got) > 0 {
		t.Errorf("these ids are not compared by bytes: %q", got)
	}
}
