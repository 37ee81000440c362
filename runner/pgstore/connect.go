package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncectl/oncectl/runner"
)

const (
	// oldestServer is the first release that tells a new connection whether
	// it is a hot standby (in_hot_standby, PostgreSQL 14 release notes).
	oldestServer = 14
	// maxAppName is NAMEDATALEN-1: a longer application_name is cut by the
	// server, with a notice.
	maxAppName = 63
)

// parseConfig reads the connection string. pgconn's own error may repeat parts
// of a password, so it is not shown.
func parseConfig(c Config) (*pgconn.Config, error) {
	if strayAt(c.ConnString) {
		return nil, badURL()
	}
	parsed, err := pgconn.ParseConfig(c.ConnString)
	if err != nil {
		if strings.Contains(c.ConnString, "://") {
			return nil, badURL()
		}
		return nil, fmt.Errorf("%w: the connection settings cannot be parsed: check the keyword string (key=value, quoted with ' where a value has spaces), the PG* variables, and the service and password files", runner.ErrInvalid)
	}
	parsed.RuntimeParams["application_name"] = appName(c.AppName)
	if parsed.ConnectTimeout == 0 {
		// One host may take its time; of several, a dead one must not.
		parsed.ConnectTimeout = 5 * time.Second
		if len(hosts(parsed)) > 1 {
			parsed.ConnectTimeout = 2 * time.Second
		}
	}
	parsed.ValidateConnect = validate(parsed.ValidateConnect)
	parsed.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {}
	return parsed, nil
}

func badURL() error {
	return fmt.Errorf("%w: the database URL cannot be parsed: percent-encode user and password in it (@ is %%40, / is %%2F, : is %%3A, # is %%23, ? is %%3F, %% is %%25, a space is %%20)", runner.ErrInvalid)
}

// strayAt finds a URL with a raw @, /, ?, # or space in its password: what
// should be its host then lies behind that, and parts of the password would be
// taken for host, port, database or parameters, and be shown. So there is one @,
// at the end of user and password.
func strayAt(conn string) bool {
	_, rest, ok := strings.Cut(conn, "://")
	if !ok {
		return false
	}
	if strings.Contains(rest, "#") {
		return true
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Count(authority, "@") > 1 || strings.ContainsAny(authority, " \t") || strings.Contains(path, "@") {
		return true
	}
	for _, pair := range strings.Split(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); strings.Contains(value, "@") && !mayHaveAt[name] || strings.Contains(name, "@") {
			return true
		}
	}
	return false
}

// mayHaveAt are the parameters of a URL's query in which a raw @ is fine.
var mayHaveAt = map[string]bool{"user": true, "password": true, "application_name": true, "options": true}

// appName is "oncectl" and the lock's name, for pg_stat_activity.
func appName(lock string) string {
	name := "oncectl"
	if lock != "" {
		name += " " + lock
	}
	for len(name) > maxAppName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

// hosts lists the different hosts of a configuration.
func hosts(c *pgconn.Config) []string {
	out := []string{hostPort(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if h := hostPort(f.Host, f.Port); h != out[len(out)-1] {
			out = append(out, h)
		}
	}
	return out
}

func hostPort(host string, port uint16) string {
	return host + ":" + strconv.Itoa(int(port))
}

// errStandby and errTooOld are refusals that need no statement.
var (
	errStandby = fmt.Errorf("%w: the server is a hot standby, whose locks guard nothing", runner.ErrRefused)
	errCrdb    = fmt.Errorf("%w: CockroachDB's advisory locks do nothing", runner.ErrRefused)
)

// validate refuses at connect time, from what the server reports unasked, so
// that it costs no round trip and the next host of the list is tried. Poolers
// do not pass all of it on: the statement that takes a lock looks again.
func validate(next pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, c *pgconn.PgConn) error {
		if c.ParameterStatus("crdb_version") != "" {
			return refusal{errCrdb}
		}
		if major, ok := majorVersion(c.ParameterStatus("server_version")); ok && major < oldestServer {
			return refusal{tooOld(c.ParameterStatus("server_version"))}
		}
		if c.ParameterStatus("in_hot_standby") == "on" {
			return refusal{errStandby}
		}
		if next != nil {
			return next(ctx, c)
		}
		return nil
	}
}

// refusal is found in what pgconn says of it, which is not for people.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func tooOld(version string) error {
	return fmt.Errorf("%w: the server is PostgreSQL %s, oncectl needs %d or later", runner.ErrRefused, version, oldestServer)
}

// majorVersion reads "15.4 (Debian …)".
func majorVersion(s string) (int, bool) {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(s)
	}
	n, err := strconv.Atoi(s[:end])
	return n, err == nil
}

// connect makes a new connection to the first host that will do.
func (s *Store) connect(ctx context.Context) (*pgconn.PgConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, s.parsed)
	if err == nil {
		return conn, nil
	}
	if len(hosts(s.parsed)) > 1 && errors.Is(err, errStandby) {
		// Another host may be the primary again in a moment.
		return nil, transient{err}
	}
	return nil, err
}
