package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// serverFacts need no right on anything. Parameters: the process id that the
// connection was told, the schema's name.
const serverFacts = `select version(), pg_is_in_recovery(), pg_backend_pid() = $1::bigint,
	(extract(epoch from clock_timestamp()) * 1000000)::bigint, current_database(), current_user, current_setting('TimeZone'),
	current_setting('fsync'), has_database_privilege(current_database(), 'create'),
	n.oid is not null, has_schema_privilege(n.oid, 'usage'), has_schema_privilege(n.oid, 'create')
from (select 1) one left join pg_catalog.pg_namespace n on n.nspname = $2`

// Columns of serverFacts.
const (
	factVersion = iota
	factRecovery
	factDirect
	factNow
	factDatabase
	factRole
	factZone
	factFsync
	factMayMakeSchema
	factSchema
	factUsage
	factMayMakeTables
)

// missingRights lists the tables and sequences that are there, each with the
// rights on it that this role needs and lacks. Parameter: the schema's name.
const missingRights = `select c.relname, array_to_string(array(
	select p from unnest(case
		when c.relkind = 'S' then '{}'::text[]
		when c.relname = 'schema_info' then '{select}'
		when c.relname = 'fences' then '{select,insert,update}'
		else '{select,insert,update,delete}' end) p
	where not has_table_privilege(c.oid, p)
	union all
	select 'usage' where c.relkind = 'S' and c.relname in ('runs_id_seq', 'outbox_id_seq') and not has_sequence_privilege(c.oid, 'usage')
), ', ')
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relkind in ('r', 'p', 'S')
	and c.relname in ('schema_info', 'processed_events', 'failed_jobs', 'outbox', 'runs', 'fences', 'runs_id_seq', 'outbox_id_seq')
order by c.relname`

// Inspect implements runner.Inspector.
func (s *Store) Inspect(ctx context.Context, now func() time.Time) ([]runner.Finding, error) {
	var found []runner.Finding
	err := s.retry(ctx, func(ctx context.Context) error {
		c, err := s.connectAny(ctx)
		if err != nil {
			return err
		}
		defer closeConn(c)
		found, err = s.inspect(ctx, c, now)
		return err
	})
	if err != nil {
		return found, fmt.Errorf("looking at the store: %w", err)
	}
	return found, nil
}

// connectAny connects as usual or, where that refuses every server, to one that
// it refused, to tell what is wrong with it.
func (s *Store) connectAny(ctx context.Context) (conn, error) {
	c, err := s.connect(ctx)
	if err == nil || !errors.Is(err, runner.ErrRefused) {
		return c, err
	}
	refused := s.parsed.Copy()
	refused.ValidateConnect = nil
	return pgconn.ConnectConfig(ctx, refused)
}

func (s *Store) inspect(ctx context.Context, c conn, now func() time.Time) ([]runner.Finding, error) {
	// The first round trip may include a pooler's own connecting; the clock is
	// read in the second.
	if _, err := pipeline(ctx, c, statement{sql: "select 1"}); err != nil {
		return nil, err
	}
	sent := now()
	results, err := pipeline(ctx, c, statement{serverFacts, []any{int64(c.PID()), s.config.Schema}})
	if err != nil {
		return nil, err
	}
	answered, r := now(), results[0][0]
	found := []runner.Finding{s.findServer(r), findPrimary(r), findSkew(r.time(factNow), sent, answered)}
	tables, err := s.findTables(ctx, c, r)
	if err != nil {
		return found, err
	}
	found = append(found, tables...)
	if r.text(factFsync) == "off" {
		found = append(found, runner.Finding{Check: "durability", Severity: runner.Note, Found: "fsync is off: a crash of the server may forget claims and damage the database"})
	}
	return append(found, findPooler(ctx, c, r.bool(factDirect))), nil // last: it may cost the connection
}

func (s *Store) findServer(r row) runner.Finding {
	version, _, _ := strings.Cut(r.text(factVersion), ",")
	f := runner.Finding{Check: "server", Severity: runner.Fine, Found: fmt.Sprintf("%s at %s, database %q, role %q, time zone %s",
		version, strings.Join(hosts(s.parsed), ", "), r.text(factDatabase), r.text(factRole), r.text(factZone))}
	major, ok := majorVersion(strings.TrimPrefix(version, "PostgreSQL "))
	switch {
	case strings.Contains(version, "CockroachDB"):
		f.Severity, f.Do = runner.Problem, "use PostgreSQL: CockroachDB's advisory locks do nothing"
	case ok && major < oldestServer:
		f.Severity, f.Do = runner.Problem, fmt.Sprintf("use PostgreSQL %d or later", oldestServer)
	}
	return f
}

func findPrimary(r row) runner.Finding {
	if r.bool(factRecovery) {
		return runner.Finding{Check: "primary", Severity: runner.Problem, Found: "the server is a hot standby: its locks guard nothing, and it takes no claims",
			Do: "connect to the primary: name it, or all hosts in one URL (host1,host2)"}
	}
	return runner.Finding{Check: "primary", Severity: runner.Fine, Found: "the server is a primary"}
}

// findSkew compares the server's clock with the middle between sending and
// answer; half the round trip is not counted against it.
func findSkew(server, sent, answered time.Time) runner.Finding {
	half := answered.Sub(sent) / 2
	skew := server.Sub(sent.Add(half))
	f := runner.Finding{Check: "clock", Severity: runner.Fine, Found: "this host and the server show the same time, to " + roundSkew(max(skew.Abs(), half)).String()}
	if skew.Abs()-half > runner.MostSkew {
		which := "behind"
		if skew < 0 {
			which = "ahead of"
		}
		f.Severity = runner.Problem
		f.Found = fmt.Sprintf("this host's clock is %v %s the server's: cron fires by the one, ticks go by the other", skew.Abs().Round(time.Second), which)
		f.Do = "set both clocks by NTP (timedatectl, chronyc tracking)"
	}
	return f
}

func roundSkew(d time.Duration) time.Duration { return d.Round(time.Millisecond) + time.Millisecond }

// findTables looks at the schema and what the role may do with it.
func (s *Store) findTables(ctx context.Context, c conn, r row) ([]runner.Finding, error) {
	owner := "have an owner run 'oncectl schema apply', or give them the output of 'oncectl schema print', and grant this role the use of schema " +
		s.schema + ", its tables and sequences"
	missing := func(what string, may bool) []runner.Finding {
		if may {
			return []runner.Finding{{Check: "schema", Severity: runner.Note, Found: what + ": they are made on first use",
				Do: "nothing, or 'oncectl schema apply'; if they should be there, look at --schema, $ONCECTL_SCHEMA and the database"}}
		}
		return []runner.Finding{{Check: "schema", Severity: runner.Problem, Found: what + ", and this role may not make them", Do: owner}}
	}
	switch {
	case !r.bool(factSchema):
		return missing("schema "+s.schema+" and its tables are not there", r.bool(factMayMakeSchema)), nil
	case !r.bool(factUsage):
		return []runner.Finding{{Check: "rights", Severity: runner.Problem, Found: "this role may not use schema " + s.schema, Do: owner}}, nil
	}
	results, err := pipeline(ctx, c, statement{missingRights, []any{s.config.Schema}})
	if err != nil {
		return nil, err
	}
	lacks, info, tables := []string{}, false, 0
	for _, r := range results[0] {
		if !strings.HasSuffix(r.text(0), "_seq") {
			tables++
		}
		if r.text(1) != "" {
			lacks = append(lacks, r.text(0)+" ("+r.text(1)+")")
		} else if r.text(0) == "schema_info" {
			info = true
		}
	}
	if tables == 0 {
		return missing("schema "+s.schema+" has no tables", r.bool(factMayMakeTables)), nil
	}
	found := []runner.Finding{{Check: "rights", Severity: runner.Fine, Found: "this role may do all that oncectl does"}}
	if len(lacks) > 0 {
		found[0] = runner.Finding{Check: "rights", Severity: runner.Problem, Found: "this role lacks rights in schema " + s.schema + ": " + strings.Join(lacks, ", "), Do: owner}
	}
	if !info {
		return found, nil
	}
	// Not in a transaction that may write, which a standby has none of.
	results, err = pipeline(ctx, c, statement{sql: s.sql(`select version, oldest_binary from {s}.schema_info`)})
	switch {
	case err != nil:
		return found, err
	case len(results[0]) == 0:
		return append(found, runner.Finding{Check: "schema", Severity: runner.Problem, Found: "schema_info has no row", Do: "run 'oncectl schema apply'"}), nil
	}
	row := results[0][0]
	return append(found, runner.SchemaStatus{Version: int(row.number(0)), OldestBinary: int(row.number(1)), Binary: sqlschema.Version}.Finding()), nil
}

// findPooler tells whether there is a pooler, and whether it will do.
func findPooler(ctx context.Context, c conn, direct bool) runner.Finding {
	if direct {
		return runner.Finding{Check: "pooler", Severity: runner.Fine, Found: "none: the connection is the server's own"}
	}
	_, err := pipeline(ctx, c, statement{sql: begin}, statement{sql: "select 1"})
	if err != nil && sqlState(err) != stateReadOnly && sqlState(err) != stateNotSupported || err == nil && c.TxStatus() != 'T' {
		return runner.Finding{Check: "pooler", Severity: runner.Problem, Found: "there is a pooler, and it keeps no transaction open (statement pooling), which locks need",
			Do: "use transaction or session pooling, or connect to the server itself"}
	}
	rollback(c)
	return runner.Finding{Check: "pooler", Severity: runner.Note, Found: "there is a pooler: each run holds two of its server connections, one of them in a transaction, which holds back vacuum",
		Do: "see that the pool has two connections a run, or connect long jobs to the server itself"}
}
