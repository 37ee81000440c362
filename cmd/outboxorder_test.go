package cmd_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// Ids are given out before commits: a row can appear behind others that are
// sent already.
func TestOutbox_WhenALowerIDIsCommittedLate_ItIsPublished(t *testing.T) {
	for _, key := range []string{"null", "'k'"} {
		t.Run(key, func(t *testing.T) {
			b := newBoxPlace(t, newPostgresPlace(t))
			early, err := b.db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer early.Rollback()
			insert := "insert into outbox (topic, key, payload) values ('orders', " + key + ", '{}')"
			if _, err := early.Exec(insert); err != nil {
				t.Fatal(err)
			}
			b.exec(insert)
			pr := b.publish("--for", "1h")
			until(t, "the second row is sent", func() bool { return b.receiver.got("outbox-2") == 1 })
			// Of one key: in the order of ids among what is committed, so that
			// the one that comes late goes out late, and not at the same time.
			if err := early.Commit(); err != nil {
				t.Fatal(err)
			}
			until(t, "the first row is sent", func() bool { return b.receiver.got("outbox-1") == 1 })
			pr.signal(syscall.SIGTERM)
			pr.ends(2)
			if b.receiver.total() != 2 {
				t.Errorf("requests: %v", b.receiver.ids)
			}
		})
	}
}

// A transaction that has touched the table holds a lock on it until it ends.
func TestOutbox_WhileARequestIsInFlight_NoTransactionIsOpen(t *testing.T) {
	b := newBoxPlace(t, newPostgresPlace(t))
	b.insert(30, "orders", nil)
	var open, looked atomic.Int32
	b.receiver.answers(func(string, string) int {
		// With one publisher and one request at a time nothing else is going on.
		n := b.count(fmt.Sprintf(`select count(*) from pg_locks l join pg_class c on c.oid = l.relation
			where c.relnamespace = '%s'::regnamespace and l.pid <> pg_backend_pid()`, b.schema))
		open.Add(int32(n))
		looked.Add(1)
		return 200
	})
	b.publish("--concurrency", "1").ends(0)
	if open.Load() != 0 || looked.Load() != 30 {
		t.Errorf("%d locks on oncectl's tables during %d requests", open.Load(), looked.Load())
	}
}

func TestOutbox_WhenPublishedByACommand_ItGetsTheMessage(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		b.exec(`insert into outbox (topic, key, payload) values ('orders', 'k', '{"b":  [1, "é"],"a":null}'), ('mail', null, '[]')`)
		b.start("outbox", "publish", "--concurrency", "1", "--", "sh", "-c",
			`printf '%s|%s|%s|' "$ONCECTL_OUTBOX_ID" "$ONCECTL_OUTBOX_TOPIC" "$ONCECTL_OUTBOX_KEY"; cat; echo`).ends(0).
			says(map[bool]string{
				true:  "1|orders|k|{\"b\":  [1, \"é\"],\"a\":null}\n2|mail||[]\n",
				false: "1|orders|k|{\"a\": null, \"b\": [1, \"é\"]}\n2|mail||[]\n", // as jsonb has it
			}[b.schema == ""])
	})
}

func TestOutbox_WhenAPublisherIsKilled_SoIsItsCommand(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		b.insert(1, "orders", nil)
		pr := b.start("outbox", "publish", "--", "sh", "-c", "echo $$ >pids; echo up; exec sleep 300")
		pr.says("up")
		command := b.pids()[0]
		pr.signal(syscall.SIGKILL)
		pr.ends(137)
		until(t, "the command is dead", func() bool { return dead(command) })
		b.leasesEnd()
		b.start("outbox", "publish", "--", "true").ends(0)
		if b.count("select count(*) from outbox where sent_at is not null and doubtful") != 1 {
			t.Error("it is not known what the killed one had done")
		}
	})
}

func TestOutbox_WhenACommandTakesTooLong_ItsGroupIsEnded(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		b.insert(1, "orders", nil)
		pr := b.start("outbox", "publish", "--timeout", "500ms", "--retries", "0", "--", "sh", "-c", "sleep 300 & echo $! >pids; wait")
		pr.ends(1)
		if left := b.pids()[0]; !dead(left) {
			t.Error("a process of the command's group is alive")
		}
		if b.count("select count(*) from failed_jobs where certainty = 'in_doubt' and last_error like '%took longer than 500ms%'") != 1 {
			t.Error("there is no dead letter that says so")
		}
	})
}

func TestOutbox_WhenTheJobOfARunAdds_ItGoesThroughTheRun(t *testing.T) {
	eachOutbox(t, func(t *testing.T, b *boxPlace) {
		job := `oncectl outbox add --topic orders --key k -d '{"n": 1}' -o json; env -u ONCECTL_DATABASE_URL ONCECTL_STATE_DIR=/nowhere oncectl outbox add --topic orders -d '[2]'`
		pr := b.start("run", "--lock", "nightly", "--", "sh", "-c", job).ends(0)
		if !strings.Contains(pr.out.String(), `"event_id":"outbox-1"`) {
			t.Errorf("stdout: %s", pr.out.String())
		}
		b.publish("--concurrency", "1").ends(0)
		if !slices.Equal(b.receiver.ids, []string{"outbox-1", "outbox-2"}) {
			t.Errorf("published: %v", b.receiver.ids)
		}
		b.start("run", "--lock", "nightly", "--", "oncectl", "outbox", "add", "--topic", "orders", "-d", "{").ends(2)
		gone := b.with("ONCECTL_SOCKET=" + b.path("gone"))
		gone.start("outbox", "add", "--topic", "orders", "-d", "{}").ends(2)
		if n := b.count("select count(*) from outbox"); n != 2 {
			t.Errorf("%d rows", n)
		}
	})
}
