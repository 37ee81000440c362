package cmd_test

import (
	"os"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner/storetest/fusetest"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// What doctor says of stores that no command uses.

// wantProblem checks that doctor ends 1, and names what is wrong and what to do.
func (p *place) wantProblem(found, do string) {
	p.t.Helper()
	said := p.start("doctor").ends(1).out.String()
	for line := range strings.SplitSeq(said, "\nproblem ") {
		if what, rest, _ := strings.Cut(line, "\n"); strings.Contains(what, found) && strings.Contains(rest, "-> ") && strings.Contains(rest, do) {
			return
		}
	}
	p.t.Errorf("it does not name %q and %q:\n%s", found, do, said)
}

// wantRefused checks that neither a claim nor a run goes on, and that they say so
// in one line, with a hint perhaps.
func (p *place) wantRefused(why string) {
	p.t.Helper()
	for _, pr := range []*process{
		p.start("claim", "--store-wait", "1s", "a").ends(2),
		p.start("run", "--store-wait", "1s", "--lock", "nightly", "--", "touch", "ran").ends(125),
	} {
		if s := pr.err.String(); !strings.HasPrefix(s, "oncectl: ") || !strings.Contains(s, why) || strings.Contains(s, "ValidateConnect") || strings.Count(s, "\n") > 2 {
			p.t.Errorf("%v: %q does not say %q", pr.Args[1:], s, why)
		}
	}
	if p.exists("ran") {
		p.t.Error("the command was run")
	}
}

func TestDoctor_WhenTheLocalStoreIsOnANetworkFileSystem_SaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fusetest.Mount(t, "fuse.sshfs", "ann@build:/srv", dir)
	p := newPlace(t).with("ONCECTL_STATE_DIR=" + dir)
	p.wantProblem("on a network file system (sshfs)", "name another store")
	p.wantRefused("on a network file system (sshfs)")
}

// oldVariable is the URL of a server older than 14; scripts/servers sets it.
const oldVariable = "ONCECTL_TEST_OLD_POSTGRES"

func TestDoctor_WhenTheServerIsTooOld_SaysSo(t *testing.T) {
	t.Parallel()
	url := os.Getenv(oldVariable)
	if url == "" {
		pgtest.Skip(t, "a PostgreSQL that is too old: ./scripts/servers has one")
	}
	p := placeAt(t, url, "public")
	p.wantProblem("PostgreSQL 13", "use PostgreSQL 14 or later")
	p.wantRefused("the server is PostgreSQL 13")
}
