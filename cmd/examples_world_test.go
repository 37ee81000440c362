package cmd_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// world is a place that has what examples name.
type world struct {
	*place
	example
	hooks *receiver
	store string // the store's URL
}

// worldEnv is what the examples' variables stand for.
var worldEnv = []string{"day=2026-12-01", "user=anna", "name=anna", "n=4711", "id=invoice/4711"}

// stubs are the commands that examples name and no system has. They say nothing
// and end with 0, so that what is tried is the line that runs them.
var stubs = []string{
	"nightly-digest", "import", "migrate", "export", "send-invoice", "send-one", "send-mail", "send_mail", "send_it",
	"report", "backup",
}

// newWorld makes the world for an example.
func newWorld(p *place, e example) *world {
	w := &world{place: p.with(worldEnv...), example: e, store: "sqlite:" + p.path("state/oncectl.db")}
	w.hooks = newReceiver(p.t, w.answer)
	if url := strings.TrimPrefix(p.env[0], "ONCECTL_DATABASE_URL="); url != p.env[0] {
		w.store = url
		w.place = w.with("DATABASE_URL="+url, "ADMIN_URL="+url, "PGOPTIONS=-c search_path="+w.schema())
	}
	for _, dir := range []string{"stubs", "usr/local/bin", "srv/app", "etc/app", "etc/oncectl", "home", "sent"} {
		w.must(os.MkdirAll(w.path(dir), 0o755))
	}
	for _, name := range stubs {
		for _, dir := range []string{".", "stubs", "srv/app", "usr/local/bin"} {
			w.stub(filepath.Join(dir, name), "")
		}
	}
	w.stub("stubs/make-report", `echo '{"month":"2026-12"}'`)
	w.must(os.Symlink(filepath.Join(binDir, "oncectl"), w.path("usr/local/bin/oncectl")))
	w.write("events.ndjson", `{"id":"a/1","payload":{"n":1}}`+"\n"+`{"id":"a/2","payload":{"n":2}}`+"\n")
	w.write("4711.json", `{"total":12}`)
	w.write("report.pdf", "%PDF")
	w.write("users", "anna\nbert\n")
	w.write("etc/oncectl/backup.ping", w.hooks.URL)
	for _, name := range []string{"auth-header", "etc/app/auth-header"} {
		w.write(name, "Authorization: Bearer secret\n")
	}
	return w
}

// stub writes a command that records that it was called.
func (w *world) stub(name, more string) {
	text := fmt.Sprintf("#!/bin/sh\necho %s >>'%s'\n%s\n", filepath.Base(name), w.path("called"), more)
	w.must(os.WriteFile(w.path(name), []byte(text), 0o755))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// oncectl runs one that must end with 0.
func (w *world) oncectl(args ...string) { w.start(args...).ends(0) }

// schema is that of a PostgreSQL store.
func (p *place) schema() string {
	for _, v := range p.env {
		if schema, ok := strings.CutPrefix(v, "ONCECTL_SCHEMA="); ok {
			return schema
		}
	}
	return ""
}

// effects counts the stubs' calls and the requests that were taken.
func (w *world) effects() int {
	w.hooks.mu.Lock()
	defer w.hooks.mu.Unlock()
	return strings.Count(w.read("called"), "\n") + len(w.hooks.got)
}

// answer is how the receiver answers: the first request of a dead letter that
// is to be is refused, all others are taken.
func (w *world) answer(out http.ResponseWriter, r request) {
	if strings.HasPrefix(r.id, "dead/") && r.nth == 1 {
		out.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	out.WriteHeader(http.StatusNoContent)
}

// deadLetters makes those that examples name by number.
func (w *world) deadLetters() {
	var batch strings.Builder
	for i := 1; i <= 13; i++ {
		fmt.Fprintf(&batch, `{"id":"dead/%d","payload":{}}`+"\n", i)
	}
	c := w.command("send", "--batch", "--url", w.hooks.URL)
	c.Stdin = strings.NewReader(batch.String())
	w.startCommand(c).ends(1)
}

// orders is a table of an application.
func (w *world) orders() {
	pgtest.Exec(w.t, w.store, "create table "+w.schema()+".orders (id int primary key, paid_at timestamptz)",
		"insert into "+w.schema()+".orders values (7)")
}

var (
	ownTable = regexp.MustCompile(`\boncectl\.(outbox|processed_events|failed_jobs|runs|fences)\b`)
	// hostPath is a place of a host that the world has for itself.
	hostPath = regexp.MustCompile(`(^|[^\w./-])(/(?:srv|etc|usr/local|var/(?:lib|log|www))/[\w./-]*)`)
)

// rewritten is the text with the places that it names moved into the world.
func (w *world) rewritten(text string) string {
	for _, found := range hostPath.FindAllStringSubmatch(text, -1) {
		w.must(os.MkdirAll(w.path(filepath.Dir(found[2])), 0o755))
	}
	text = hostPath.ReplaceAllString(text, "${1}"+w.dir+"${2}")
	text = strings.NewReplacer(
		"https://hooks.example", w.hooks.URL,
		"postgres://app@db/app", w.store,
		"--for 55s", "--for 50ms", // nobody waits for it
	).Replace(text)
	if schema := w.schema(); schema != "" {
		text = ownTable.ReplaceAllString(text, schema+".$1")
	}
	return text
}
