package cmd_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// The holder's network falls silent: packets are dropped, and nobody is told.
// The server frees the lock by itself, and by then the job is paused.
func TestRun_WhenTheNetworkDropsPackets_TheJobIsPausedBeforeTheRivalsBegins(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	server := pgtest.Start(t, "listen_addresses = '*'")
	n.admit(server)
	pooler := pgtest.Bouncer(t, server.URL(), "transaction", "listen_addr = *")
	silent := map[string]*silentRun{
		"direct": {place: placeAt(t, server.URL(), "public")},
		"pooled": {place: placeAt(t, pooler, "public")},
	}
	for lock, s := range silent {
		c := s.command("run", "--lock", lock, "--lock-grace", "5m", "-v", "--", "sh", "-c", ticking)
		n.enter(c, s.place)
		s.holder = s.startCommand(c)
		s.holder.says("up")
		until(t, lock+": the job claims", func() bool { return s.exists("ticks") })
	}
	began := time.Now()
	n.silence()
	for lock, s := range silent {
		s.rival = s.start("run", "--lock", lock, "--wait", "90s", "-v", "--", "sh", "-c",
			`ps -o stat= -p $(cat pids) >saw; touch rival; until [ -e rivalstop ]; do sleep 0.05; done`)
	}
	for lock, s := range silent {
		job := s.pids()[0]
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s: the holder said: %s\nthe rival: %s", lock, s.holder.err.String(), s.rival.err.String())
			}
		})
		until(t, lock+": the job is paused", func() bool { return stateOf(job) == "T" })
	}
	for lock, s := range silent {
		until(t, lock+": the rival's job", func() bool { return s.exists("rival") })
		// The rival itself looked, as its job's first act.
		if got := s.read("saw"); !strings.HasPrefix(got, "T") {
			t.Errorf("%s: as the rival's job began, the other was %q", lock, got)
		}
		since := pgtest.Query(t, server.URL(), fmt.Sprintf(
			"select (max(started_at) < timestamptz 'epoch' + interval '%d s' + interval '1 minute')::text from public.runs where lock = '%s'", began.Unix(), lock))
		if since[0] != "true" {
			t.Errorf("%s: the rival had to wait for the lock for more than a minute", lock)
		}
	}
	// Once it hears again, the holder learns that it was overtaken.
	n.speak()
	for lock, s := range silent {
		s.holder.ends(120)
		s.write("rivalstop", "")
		s.rival.ends(0)
		if c := s.holder.err.String(); !strings.Contains(c, "another run has had it since") {
			t.Errorf("%s: it does not say why the job was ended: %q", lock, c)
		}
	}
}

type silentRun struct {
	*place
	holder, rival *process
}

// network is a network namespace and the cable to it. Its ends are addressed by
// hand: what goes to a wrong hardware address is dropped by the other end, so
// that neither end notices.
type network struct {
	t                testing.TB
	name, near, far  string // the namespace, the ends of the cable
	nearMAC, farMAC  string
	nearAddr, farAdr string
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		pgtest.Skip(t, "root, for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		pgtest.Skip(t, "ip (Debian: iproute2)")
	}
	id := os.Getpid()
	n := &network{
		t: t, name: fmt.Sprintf("oncectl-%d", id), near: fmt.Sprintf("onn%d", id), far: fmt.Sprintf("onf%d", id),
		nearMAC: "02:00:00:00:00:01", farMAC: "02:00:00:00:00:02",
		nearAddr: fmt.Sprintf("10.%d.%d.1", 200+id>>8%50, id%256), farAdr: fmt.Sprintf("10.%d.%d.2", 200+id>>8%50, id%256),
	}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		pgtest.Skip(t, "the right to make network namespaces: "+strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() {
		// The namespace goes when its last socket does, the cable at once.
		n.ip("link", "del", n.near)
		n.ip("netns", "del", n.name)
	})
	n.ip("link", "add", n.near, "address", n.nearMAC, "type", "veth", "peer", "name", n.far, "address", n.farMAC, "netns", n.name)
	n.ip("addr", "add", n.nearAddr+"/30", "dev", n.near)
	n.ip("link", "set", n.near, "up")
	n.ip("-n", n.name, "addr", "add", n.farAdr+"/30", "dev", n.far)
	n.ip("-n", n.name, "link", "set", n.far, "up")
	n.speak()
	return n
}

func (n *network) silence() { n.address("02:00:00:00:00:03", "02:00:00:00:00:03") }
func (n *network) speak()   { n.address(n.nearMAC, n.farMAC) }

// address says behind which hardware address each end finds the other.
func (n *network) address(nearMAC, farMAC string) {
	n.t.Helper()
	n.ip("neigh", "replace", n.farAdr, "lladdr", farMAC, "dev", n.near, "nud", "permanent")
	n.ip("-n", n.name, "neigh", "replace", n.nearAddr, "lladdr", nearMAC, "dev", n.far, "nud", "permanent")
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Errorf("ip %v: %v %s", args, err, out)
	}
}

// admit lets the far end use the server.
func (n *network) admit(s *pgtest.Server) {
	n.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.Dir, "data", "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "host all all %s/32 trust\n", n.farAdr)
	s.Stop(n.t, "fast")
	s.Up(n.t)
}

// enter moves a command to the far end, from where it reaches the place's store
// by the near end's address.
func (n *network) enter(c *exec.Cmd, p *place) {
	n.t.Helper()
	c.Args = append([]string{"nsenter", "--net=/run/netns/" + n.name, "--"}, c.Args...)
	path, err := exec.LookPath("nsenter")
	if err != nil {
		pgtest.Skip(n.t, "nsenter (Debian: util-linux)")
	}
	c.Path = path
	for i, v := range c.Env {
		raw, ok := strings.CutPrefix(v, "ONCECTL_DATABASE_URL=")
		if !ok {
			continue
		}
		u, err := url.Parse(raw)
		if err != nil {
			n.t.Fatal(err)
		}
		u.Host = n.nearAddr + ":" + u.Port()
		c.Env[i] = "ONCECTL_DATABASE_URL=" + u.String()
	}
}
