// Package sqlschema holds the tables of oncectl's stores as numbered SQL
// files, one folder a dialect, with the same file names in each so that they
// can be laid side by side.
package sqlschema

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// Version is the schema version that this binary was built with: the number of
// the last file. A store whose schema_info.oldest_binary is greater refuses
// this binary.
const Version = 1

// DefaultSchema is the PostgreSQL schema of oncectl's tables.
const DefaultSchema = "oncectl"

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Migration is one numbered file.
type Migration struct {
	Number int
	Name   string // its file name, for example 001_tables.sql
	SQL    string
}

// Postgres returns the migrations for PostgreSQL, in order, for the schema of
// that name.
func Postgres(schema string) []Migration {
	m := load("postgres")
	for i := range m {
		m[i].SQL = strings.ReplaceAll(m[i].SQL, "{schema}", QuoteIdent(schema))
	}
	return m
}

// SQLite returns the migrations for SQLite, in order.
func SQLite() []Migration { return load("sqlite") }

// QuoteIdent quotes name as an SQL identifier.
func QuoteIdent(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// load panics on a file that is not there or not numbered: the files are part
// of the binary, and a test loads them.
func load(dialect string) []Migration {
	entries, err := fs.ReadDir(files, dialect)
	if err != nil {
		panic(err)
	}
	out := make([]Migration, 0, len(entries))
	for _, e := range entries {
		b, err := files.ReadFile(dialect + "/" + e.Name())
		if err != nil {
			panic(err)
		}
		m := Migration{Name: e.Name(), SQL: string(b)}
		if _, err := fmt.Sscanf(e.Name(), "%03d_", &m.Number); err != nil {
			panic(fmt.Sprintf("sqlschema: %s has no number: %v", e.Name(), err))
		}
		out = append(out, m)
	}
	return out
}
