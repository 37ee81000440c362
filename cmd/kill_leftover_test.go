package cmd_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// The socket is made while the run is recorded, long before the job where the
// run before was never finished.
func TestRun_WhenKilledBeforeItsJobBegins_ItsSocketIsRemoved(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	p := placeAt(t, url, schema)
	p.env = append(p.env, "TMPDIR="+p.dir)
	p.start("run", "--lock", "nightly", "--", "true").ends(0)
	pgtest.Exec(t, url, "update "+schema+".runs set finished_at = null, outcome = null, host_id = 'elsewhere'")
	pr := p.start("run", "--lock", "nightly", "-v", "--", "true")
	until(t, "it waits for the run before", func() bool { return strings.Contains(pr.err.String(), "waiting: the run before") })
	folder := func() bool {
		found, err := filepath.Glob(p.path("oncectl-*"))
		return err == nil && len(found) > 0
	}
	until(t, "its socket is there", folder)
	pr.signal(syscall.SIGKILL)
	pr.ends(137)
	until(t, "its socket is gone", func() bool { return !folder() })
}
