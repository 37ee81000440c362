package cmd_test

import (
	"slices"
	"strings"
	"testing"
)

// Not what an example says, but what becomes of it here. Each entry is for the
// examples that have the text.
var (
	// notRun are examples that are not run, with the reason.
	notRun = []struct{ has, why string }{
		{"./scripts/quickstart", "a step of ./scripts/test"},
		{"./scripts/test", "runs this test"},
		{"./scripts/release", "a step of ./scripts/test makes packages, and scripts/test-package installs one"},
		{"./scripts/image/build", "scripts/test-image builds it and runs it"},
		{"go build -o", "TestMain builds oncectl so, and all other examples run what it made"},
	}
	// endsWith are examples that do not end with 0, with the reason. They are
	// README's wrong versions, whose point this is.
	endsWith = []struct {
		has    string
		status int
		why    string
	}{
		{"date +%F", 2, "cron cuts the command at the %"},
		{"PATH=/usr/bin:/bin\n", 127, "oncectl is not there"},
	}
	// onlyOn are examples that need one of the stores.
	onlyOn = []struct{ has, store string }{
		{"psql", "postgres"},
	}
	// twice are examples that are run twice: how many mails and requests there
	// are in all then. It tells what is wrong from its cure.
	twice = []struct {
		has     string
		effects int
	}{
		{"# wrong\nwhile read", 4},
		{"done <users\n", 2},
		{`"digest/$day/$user"`, 1},
		{"curl --retry", 2},
		{`"$n.json"` + "\noncectl send --batch", 3},
		{`oncectl send --id "invoice/$n"`, 1},
	}
	// needs is what must have been there before.
	needs = []struct {
		has  string
		make func(*world)
	}{
		{"oncectl failed ", (*world).deadLetters},
		{"oncectl release", func(w *world) { w.oncectl("claim", "invoice/4711") }},
		{"--max-age 25h", func(w *world) { w.oncectl("run", "--lock", "nightly-digest", "--", "true") }},
		{"insert into", func(w *world) { w.oncectl("claim", "any") }}, // makes the tables
		{"update orders", (*world).orders},
	}
)

// Whoever copies a line from README.md or from a manual page's examples finds
// that it works: the test runs each of them, on both stores, in a world that has
// what the lines name.
func TestExamples_WhenCopied_Work(t *testing.T) {
	examples := append(readmeExamples(t), manualExamples()...)
	for _, has := range entries() {
		if !slices.ContainsFunc(examples, func(e example) bool { return e.has(has) }) {
			t.Errorf("no example has %q any more", has)
		}
	}
	eachStore(t, func(t *testing.T, p *place) {
		store := "sqlite"
		if p.schema() != "" {
			store = "postgres"
		}
		for _, e := range examples {
			if why := e.whyNot(); why != "" {
				t.Logf("%s is not run: %s", e.from, why)
				continue
			}
			if only := e.store(); only != "" && only != store {
				continue
			}
			t.Run(e.from, func(t *testing.T) {
				t.Parallel()
				own := newPlace(t)
				if store == "postgres" {
					own = newPostgresPlace(t)
				}
				newWorld(own, e).live()
			})
		}
	})
}

// entries are all texts of the tables.
func entries() (all []string) {
	for _, x := range notRun {
		all = append(all, x.has)
	}
	for _, x := range endsWith {
		all = append(all, x.has)
	}
	for _, x := range onlyOn {
		all = append(all, x.has)
	}
	for _, x := range twice {
		all = append(all, x.has)
	}
	for _, x := range needs {
		all = append(all, x.has)
	}
	return all
}

func (e example) whyNot() string {
	for _, x := range notRun {
		if e.has(x.has) {
			return x.why
		}
	}
	return ""
}

// store is the only one on which the example can be run, if there is one.
func (e example) store() string {
	for _, x := range onlyOn {
		if e.lang == "sql" || e.has(x.has) {
			return x.store
		}
	}
	return ""
}

// status is what a step ends with.
func status(step string) int {
	for _, x := range endsWith {
		if strings.Contains(step, x.has) {
			return x.status
		}
	}
	return 0
}
