package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/pgstore"
	"github.com/oncectl/oncectl/runner/sqlitestore"
	"github.com/oncectl/oncectl/sqlschema"
)

// storeOptions are the flags by which every command finds its store.
type storeOptions struct {
	databaseURL string
	schema      string
	wait        time.Duration
}

func (o *storeOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.databaseURL, "database-url", "", "PostgreSQL `URL` or keyword string, or sqlite:PATH (default $ONCECTL_DATABASE_URL, …)")
	f.StringVar(&o.schema, "schema", "", "PostgreSQL schema of oncectl's tables (default $ONCECTL_SCHEMA, else oncectl)")
	f.DurationVar(&o.wait, "store-wait", defaultStoreWait, "how long to try again when the store cannot be reached")
}

// schemaName is the schema that flags and environment name.
func (o *storeOptions) schemaName(env *Env) string {
	return firstNonEmpty(o.schema, env.Getenv("ONCECTL_SCHEMA"), sqlschema.DefaultSchema)
}

// store is a store with all that commands ask of one.
type store interface {
	runner.Store
	runner.SchemaKeeper
	runner.DeadLetters
	runner.Sweeper
	runner.Outbox
	runner.History
	runner.Pruner
	runner.Inspector
}

// storeChoice says which store was chosen, and by what.
type storeChoice struct {
	Postgres bool
	Conn     string // PostgreSQL: URL or keyword string; empty: libpq's environment
	Path     string // SQLite
	By       string // the flag, variable or default that chose
}

// chooseStore follows the order that README.md promises ("Which store").
func (o *storeOptions) chooseStore(env *Env) (storeChoice, error) {
	if o.databaseURL != "" {
		return parseStoreURL(o.databaseURL, "--database-url")
	}
	if u := env.Getenv("ONCECTL_DATABASE_URL"); u != "" {
		return parseStoreURL(u, "$ONCECTL_DATABASE_URL")
	}
	if f := env.Getenv("ONCECTL_DATABASE_URL_FILE"); f != "" {
		b, err := os.ReadFile(f)
		if err != nil {
			return storeChoice{}, fmt.Errorf("reading $ONCECTL_DATABASE_URL_FILE: %w", err)
		}
		u := strings.TrimSpace(string(b))
		if u == "" {
			return storeChoice{}, fmt.Errorf("reading $ONCECTL_DATABASE_URL_FILE: %s is empty", f)
		}
		return parseStoreURL(u, "$ONCECTL_DATABASE_URL_FILE")
	}
	if u := env.Getenv("DATABASE_URL"); u != "" {
		return parseStoreURL(u, "$DATABASE_URL")
	}
	for _, name := range []string{"PGHOST", "PGSERVICE", "PGDATABASE"} {
		if env.Getenv(name) != "" {
			return storeChoice{Postgres: true, By: "$" + name}, nil
		}
	}
	return defaultStore(env)
}

// parseStoreURL tells the two engines apart. It never repeats u, which may
// hold a password.
func parseStoreURL(u, by string) (storeChoice, error) {
	if path, ok := strings.CutPrefix(u, "sqlite:"); ok {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return storeChoice{}, hinted{fmt.Errorf("%s names no file after \"sqlite:\"", by), "sqlite:/var/lib/oncectl/oncectl.db, for example"}
		}
		return storeChoice{Path: path, By: by}, nil
	}
	scheme, _, isURL := strings.Cut(u, "://")
	switch {
	case scheme == "postgres" || scheme == "postgresql":
	case !isURL && strings.Contains(u, "="):
	case isURL && isScheme(scheme):
		return storeChoice{}, hinted{fmt.Errorf("%s begins with %s://, which oncectl cannot use", by, scheme), "it takes postgres://…, a keyword string such as 'host=db dbname=app', or sqlite:PATH"}
	default:
		return storeChoice{}, hinted{fmt.Errorf("%s is neither a URL nor a keyword string", by), "it takes postgres://…, a keyword string such as 'host=db dbname=app', or sqlite:PATH"}
	}
	return storeChoice{Postgres: true, Conn: u, By: by}, nil
}

// isScheme reports whether s can be shown as a URL's scheme: letters, digits
// and "+-." only, so that no part of a broken URL is repeated.
func isScheme(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

// defaultStore is the local store, which guards one user on one machine.
func defaultStore(env *Env) (storeChoice, error) {
	if env.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return storeChoice{}, hinted{errors.New("no database is set, and a local file in a Pod guards nothing"),
			"set $ONCECTL_DATABASE_URL or $ONCECTL_DATABASE_URL_FILE, or name a file on purpose with --database-url sqlite:PATH"}
	}
	dir, by := stateDir(env)
	if dir == "" {
		return storeChoice{}, hinted{errors.New("there is no place for the local store: neither $ONCECTL_STATE_DIR nor $XDG_STATE_HOME nor $HOME is set"),
			"set ONCECTL_STATE_DIR to a folder on a local disk"}
	}
	return storeChoice{Path: filepath.Join(dir, "oncectl.db"), By: by}, nil
}

// stateDir is where the local store lives, and what says so.
func stateDir(env *Env) (dir, by string) {
	if d := env.Getenv("ONCECTL_STATE_DIR"); d != "" {
		return d, "$ONCECTL_STATE_DIR"
	}
	if os.Geteuid() == 0 {
		return "/var/lib/oncectl", "the default for root"
	}
	if d := env.Getenv("XDG_STATE_HOME"); d != "" {
		return filepath.Join(d, "oncectl"), "$XDG_STATE_HOME"
	}
	if d := home(env); d != "" {
		return filepath.Join(d, ".local", "state", "oncectl"), "the default"
	}
	return "", ""
}

// home is the user's home, from passwd where HOME is not set.
func home(env *Env) string {
	if d := env.Getenv("HOME"); d != "" {
		return d
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// openStore opens the chosen store. appName is what a server shows of it.
func (o *storeOptions) openStore(ctx context.Context, env *Env, appName string) (store, error) {
	if o.wait < 0 {
		return nil, usagef("--store-wait must not be negative")
	}
	choice, err := o.chooseStore(env)
	if err != nil {
		return nil, err
	}
	if choice.Postgres {
		return pgstore.Open(pgstore.Config{
			ConnString: choice.Conn, Schema: o.schemaName(env), StoreWait: o.wait, AppName: appName, Log: env.Log,
		})
	}
	return sqlitestore.Open(sqlitestore.Config{
		Path: choice.Path, Schema: o.schemaName(env), StoreWait: o.wait, Log: env.Log, ExitsSoon: true,
		Created: func(path string) { printCreated(env, path) },
	})
}

// printCreated is the one notice about a new local store.
func printCreated(env *Env, path string) {
	fmt.Fprintf(env.Err, "oncectl: created the local store %s: it guards what runs as this user on this machine; set ONCECTL_DATABASE_URL to guard several\n", path)
}

func firstNonEmpty(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
