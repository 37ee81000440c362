//go:build linux

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

const (
	hostCount = 3
	localSize = "48m" // of the file system that the local store is on
)

// world is all that there is.
type world struct {
	t         *bench
	dir       string
	bin, self string
	seed      uint64

	server  *pgtest.Server
	poolers map[string]*url.URL // by route
	receiver
	hosts  []*host
	faults *faults
	procs  processes

	kept           // what the actors know
	exits counter  // of oncectl, by command and status
	left  []string // what nobody uses any more, at the end
	began time.Time

	stop     chan struct{} // closed when actors are to begin nothing more
	stopFile string        // jobs end when it is there
	actors   sync.WaitGroup
}

func newWorld(t *bench, dir, bin string, seed uint64) *world {
	self, err := os.Executable()
	check(err)
	w := &world{
		t: t, dir: dir, bin: bin, self: self, seed: seed, began: time.Now(), stop: make(chan struct{}),
		poolers: map[string]*url.URL{}, kept: newKept(),
	}
	w.stopFile = filepath.Join(dir, "stop")
	check(os.MkdirAll(w.evidence("stamps"), 0o755))
	w.procs.alive = map[int]*process{}
	w.procs.log, err = os.Create(w.evidence("log"))
	check(err)
	check(os.MkdirAll(w.local(), 0o700))
	check(unix.Mount("tmpfs", w.local(), "tmpfs", 0, "size="+localSize))
	t.Cleanup(func() { _ = unix.Unmount(w.local(), unix.MNT_DETACH) }) // it goes with the namespace at the latest
	ip("link", "set", "lo", "up")
	ip("addr", "add", receiverAddr+"/32", "dev", "lo")
	w.server = pgtest.Start(t, "listen_addresses = '*'", "log_line_prefix = '%m %p %a '", "log_connections = off")
	hba, err := os.OpenFile(filepath.Join(w.server.Dir, "data", "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	check(err)
	fmt.Fprintln(hba, "host all all 10.77.0.0/16 trust")
	check(hba.Close())
	pgtest.Exec(t, w.server.URL(), "select pg_reload_conf()")
	for route, mode := range map[string]string{"pooled": "transaction", "session": "session"} {
		raw := pgtest.Bouncer(t, w.server.URL(), mode, "listen_addr = *", "admin_users = postgres", "server_login_retry = 1")
		w.poolers[route], err = url.Parse(raw)
		check(err)
	}
	w.openReceiver()
	for n := range hostCount {
		w.hosts = append(w.hosts, newHost(w, n))
	}
	return w
}

func (w *world) evidence(name string) string { return filepath.Join(w.dir, "evidence", name) }
func (w *world) local() string               { return filepath.Join(w.dir, "local") }

// note writes to the log of all processes.
func (w *world) note(format string, args ...any) {
	w.procs.mu.Lock()
	defer w.procs.mu.Unlock()
	fmt.Fprintf(w.procs.log, "%s %s\n", time.Now().Format(clock), fmt.Sprintf(format, args...))
}

// storeVariable names the store as a process on the host sees it.
func (w *world) storeVariable(h *host, c call) string {
	if c.store == "local" {
		return "ONCECTL_STATE_DIR=" + w.local()
	}
	u, err := url.Parse(w.server.URL())
	check(err)
	switch c.route {
	case "proxy":
		return "ONCECTL_DATABASE_URL=" + h.proxyURL
	case "pooled", "session":
		u = w.poolers[c.route]
	}
	far := *u
	far.Host = h.near + ":" + u.Port()
	return "ONCECTL_DATABASE_URL=" + far.String()
}

// choices is the source of what one actor, or the faults, choose.
func (w *world) choices(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

func (w *world) stopping() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// sleep is cut short when the actors are to end.
func (w *world) sleep(d time.Duration) {
	select {
	case <-w.stop:
	case <-time.After(d):
	}
}

// ask does something as the superuser, directly.
func (w *world) ask(f func(ctx context.Context, c *pgx.Conn) error) error {
	return askAt(w.server.URL(), f)
}

func askAt(url string, f func(ctx context.Context, c *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return f(ctx, c)
}

// counter counts by name.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name] += n
}

// kept is what the actors know, for the checker to hold oncectl to.
type kept struct {
	mu     sync.Mutex
	events map[string]sent    // by id
	won    map[string][]int   // claims that were won, and the processes that did
	keys   map[string]bool    // "store lock key": whether a run of it is said to have succeeded
	ticks  []tickDone         // when a tick is said to be done
	rows   map[string][]added // rows of the outbox that were committed, by store
	// crashes are panics of oncectl, which says nothing of the kind otherwise.
	crashes []string
}

type sent struct {
	store      string
	idempotent bool
}

type tickDone struct {
	store, lock string
	from, to    time.Time // the call that said so
	process     int
}

type added struct {
	id  int64
	key string
}

func newKept() kept {
	return kept{events: map[string]sent{}, won: map[string][]int{}, keys: map[string]bool{}, rows: map[string][]added{}}
}

func (k *kept) know(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}
