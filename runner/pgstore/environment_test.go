package pgstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// What libpq takes from the environment. These tests set it and so cannot run
// beside others.
func TestEnvironment_WhenItHasWhatIsMissing_Works(t *testing.T) {
	server := secretServer(t)
	password := `hu\sh:%S/@#? hush`
	pgtest.Exec(t, server.URL(), "alter role app password "+quote(password))
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	escaped := strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(password)
	passfile := file("pgpass", fmt.Sprintf("# a comment\n127.0.0.1:%d:postgres:app:%s\n", server.Port, escaped))
	service := file("services", fmt.Sprintf("[app]\nhost=127.0.0.1\nport=%d\ndbname=postgres\nuser=app\nsslmode=disable\n", server.Port))
	where := fmt.Sprintf("host=127.0.0.1 port=%d dbname=postgres user=app sslmode=disable", server.Port)
	t.Setenv("HOME", dir)
	for name, c := range map[string]struct {
		conn string
		env  map[string]string
	}{
		"a URL and PGPASSWORD":    {as(t, server.URL(), "app", ""), map[string]string{"PGPASSWORD": password}},
		"keywords and PGPASSFILE": {where, map[string]string{"PGPASSFILE": passfile}},
		"no URL": {"", map[string]string{
			"PGHOST": "127.0.0.1", "PGPORT": fmt.Sprint(server.Port), "PGDATABASE": "postgres", "PGUSER": "app", "PGSSLMODE": "disable", "PGPASSWORD": password,
		}},
		"no URL and PGSERVICE": {"", map[string]string{"PGSERVICE": "app", "PGSERVICEFILE": service, "PGPASSFILE": passfile}},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			if err := try(t, c.conn); err != nil {
				t.Errorf("Claim() = %v", err)
			}
		})
	}
	t.Run("and without a password it does not", func(t *testing.T) {
		err := try(t, where)
		wantErr(t, "Claim", err, runner.ErrUnavailable)
	})
}
