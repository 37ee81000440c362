package cmd_test

import "testing"

// A job may end well while its lock is lost, and its oncectl record that only
// when the next run of the same key waits for it already.
func TestRun_WhenItsKeySucceedsWhileItWaits_IsSkipped(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		p.start("run", "--lock", "l", "--once", "k", "--", "true").ends(0)
		unfinished := "update {s}runs set finished_at = null, outcome = null, host_id = 'elsewhere'"
		if _, _, ok := p.isPostgres(); !ok {
			unfinished += ", server = 'another file'" // else nothing has to be waited for
		}
		p.query(unfinished + " returning host_id")
		pr := p.start("run", "--lock", "l", "--once", "k", "-v", "--", "touch", "ran")
		pr.complains("waiting: the run before")
		p.query("update {s}runs set finished_at = started_at, outcome = 'succeeded' where host_id = 'elsewhere' returning host_id")
		pr.ends(0)
		if p.exists("ran") {
			t.Error("the key ran twice")
		}
		if got := p.query("select cast(count(*) as text) from {s}runs"); got[0] != "1" {
			t.Errorf("%s runs are recorded", got[0])
		}
	})
}
