package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

// conn is short for what every statement needs.
type conn = *pgconn.PgConn

// SchemaStatus implements runner.SchemaKeeper.
func (s *Store) SchemaStatus(ctx context.Context) (status runner.SchemaStatus, err error) {
	err = s.do(ctx, func(ctx context.Context, c conn) error {
		status, err = s.readStatus(ctx, c)
		return err
	})
	return status, err
}

// readStatus reads what is there, and version 0 where nothing is.
func (s *Store) readStatus(ctx context.Context, c conn) (runner.SchemaStatus, error) {
	status := runner.SchemaStatus{Binary: sqlschema.Version}
	results, err := transact(ctx, c, 0, statement{sql: s.sql(`select version, oldest_binary from {s}.schema_info`)})
	switch {
	case isMissing(err):
		return status, nil
	case err != nil:
		return status, err
	case len(results[0]) == 0:
		return status, fmt.Errorf("%w: schema_info has no row", runner.ErrRefused)
	}
	status.Version, status.OldestBinary = int(results[0][0].number(0)), int(results[0][0].number(1))
	return status, nil
}

// ApplySchema implements runner.SchemaKeeper.
func (s *Store) ApplySchema(ctx context.Context) (runner.SchemaStatus, error) {
	status, err := s.SchemaStatus(ctx)
	if err != nil {
		return status, err
	}
	if err := notFor(status.OldestBinary); err != nil {
		return status, err
	}
	if status.Version < sqlschema.Version {
		if err := s.do(ctx, s.makeTables); err != nil {
			return status, fmt.Errorf("applying the schema: %w", err)
		}
	}
	return s.SchemaStatus(ctx)
}

// makeTables makes or completes the tables, in one transaction that all first
// users take in turn: those that come later find everything in place.
func (s *Store) makeTables(ctx context.Context, c conn) error {
	rollback(c)
	key := formatKey(runner.LockKey(s.config.Schema, "\x00schema"))
	head, err := pipeline(ctx, c,
		statement{sql: begin},
		statement{settings, []any{"60000"}},
		statement{sql: "select set_config('client_min_messages', 'warning', true)"},
		statement{sql: "select pg_advisory_xact_lock(" + key + ")"},
		statement{"select exists (select from pg_catalog.pg_namespace where nspname = $1)", []any{s.config.Schema}},
	)
	if err != nil {
		return err
	}
	defer rollback(c)
	there := head[4][0].bool(0)
	for _, m := range sqlschema.Postgres(s.config.Schema) {
		text := m.SQL
		if there {
			// This statement needs a right on the database even where there
			// is nothing to do.
			text = strings.Replace(text, "create schema if not exists "+s.schema+";", "", 1)
		}
		if err := c.Exec(ctx, text).Close(); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return c.Exec(ctx, "commit").Close()
}

func formatKey(key int64) string { return fmt.Sprintf("%d", key) }
