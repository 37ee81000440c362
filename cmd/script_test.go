package cmd_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// binDir holds the oncectl that the tests run: the real one, built as it is
// shipped, as a process of its own.
var binDir string

func TestMain(m *testing.M) {
	if signal.Ignored(syscall.SIGHUP) {
		// Under nohup: what tests start is to have the default all the same.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" && flag.Lookup("test.run").Value.String() == "^$" {
		return m.Run() // fuzzing alone needs no binary, in none of its processes
	}
	dir, err := os.MkdirTemp("", "oncectl-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = dir
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "oncectl"), "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building oncectl: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// TestScripts runs testdata/script on both stores. Each script has a store of
// its own; conditions [sqlite] and [postgres] tell where it runs.
func TestScripts(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { runScripts(t, "sqlite", func(*testscript.Env) error { return nil }) })
	t.Run("postgres", func(t *testing.T) {
		pgtest.Schema(t) // says what is missing
		runScripts(t, "postgres", func(env *testscript.Env) error {
			url, schema := pgtest.Schema(env.T().(testing.TB))
			env.Setenv("ONCECTL_DATABASE_URL", url)
			env.Setenv("ONCECTL_SCHEMA", schema)
			return nil
		})
	})
}

func runScripts(t *testing.T, store string, setup func(*testscript.Env) error) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			for k, v := range map[string]string{
				"PATH":              binDir + string(os.PathListSeparator) + os.Getenv("PATH"),
				"HOME":              filepath.Join(env.WorkDir, "home"),
				"ONCECTL_STATE_DIR": filepath.Join(env.WorkDir, "state"),
				"STORE":             store,
			} {
				env.Setenv(k, v)
			}
			return setup(env)
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "sqlite", "postgres":
				return cond == store, nil
			}
			return false, fmt.Errorf("no such condition: %s", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": cmdStatus},
	})
}

// cmdStatus is `status N COMMAND [ARG…]`: the command must end with exit
// status N exactly.
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("running %v: %v", args[1:], err)
	}
	if got != want {
		ts.Fatalf("%v ended with %d, not with %d", args[1:], got, want)
	}
}
