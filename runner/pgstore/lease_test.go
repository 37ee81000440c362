package pgstore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// With heartbeats and deadlines far away, only a watch on the idle connection
// can notice.
func TestLease_WhenItsBackendIsTerminated_IsLostAtOnce(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		s := open(t, via, schema)
		s.timing.beat, s.timing.deadline, s.timing.cut = time.Hour, time.Hour, time.Hour
		h := take(t, s)
		terminate(t, direct, schema)
		wantLost(t, h, soon)
		if err := h.Check(t.Context()); err != runner.ErrLockLost {
			t.Errorf("Check() = %v, want ErrLockLost", err)
		}
		take(t, open(t, via, schema))
	})
}

// The holder must know before anybody else can have the lock, and the server
// must not keep it for ever.
func TestLease_WhenTheNetworkIsSilent_IsLostAtTheDeadlineAndFreedLater(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		proxy, through := pgtest.NewProxy(t, via)
		h := take(t, open(t, through, schema))
		before := time.Now()
		if err := h.Check(t.Context()); err != nil {
			t.Fatalf("Check() = %v", err)
		}
		if err := proxy.Vanish(); err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		wantLost(t, h, runner.LeaseDeadline+soon)
		if lost := time.Since(before); lost < runner.LeaseDeadline {
			t.Errorf("lost %v after the last answered heartbeat was sent, want at least %v", lost, runner.LeaseDeadline)
		}
		if lost := time.Since(after); lost > runner.LeaseDeadline+3*time.Second {
			t.Errorf("lost only %v after the silence began", lost)
		}
		until(t, "the server frees the lock", soon+soon, func() bool { return len(holders(t, direct, schema)) == 0 })
		if freed := time.Since(before); freed < runner.LeaseFreedAfter {
			t.Errorf("freed already after %v", freed)
		}
		if freed := time.Since(after); freed > runner.LeaseFreedBy+2*time.Second {
			t.Errorf("freed only after %v", freed)
		}
	})
}

// A silence that ends within the deadline is none.
func TestLease_WhenTheConnectionAnswersAgain_IsRegained(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		s := open(t, via, schema)
		s.timing.beat, s.timing.deadline = time.Hour, 200*time.Millisecond
		h := take(t, s)
		wantLost(t, h, soon)
		if err := h.Regain(t.Context()); err != nil {
			t.Fatalf("Regain() = %v, but the lock was held all along", err)
		}
		wantLost(t, h, soon) // Lost gives another channel, which closes again
		terminate(t, direct, schema)
		until(t, "Regain says that the lock is gone", soon, func() bool { return h.Regain(t.Context()) != nil })
		wantErr(t, "Regain of a lock that is gone", h.Regain(t.Context()), runner.ErrLockLost)
	})
}

// hold keeps an id in an application's open transaction until the returned
// function is called, which rolls it back.
func hold(t *testing.T, url, schema, id string) (letGo func()) {
	t.Helper()
	return holdUntil(t, url, schema, id, "rollback")
}

func holdUntil(t *testing.T, url, schema, id, end string) (letGo func()) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		if _, err := c.Exec(t.Context(), sql); err != nil && t.Context().Err() == nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	exec(`select set_config(name, '0', false) from pg_settings where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')`)
	exec("begin isolation level read committed read write")
	exec("insert into " + schema + ".processed_events (event_id) values (" + quote(id) + ")")
	t.Cleanup(func() { c.PgConn().Conn().Close() })
	return func() { exec(end) }
}

// A claim that waits longer than the deadline holds up the heartbeats of a
// direct connection; the lock is there all the same.
func TestLease_WhenAQueryIsInFlight_ItIsNotTakenForSilence(t *testing.T) {
	t.Parallel()
	ways(t, nil, func(t *testing.T, via, direct, schema string) {
		s := open(t, via, schema)
		wantWon(t, s, claimOf(nil, "tables"), true) // they take their time, on a busy machine
		s.timing.beat, s.timing.deadline = 500*time.Millisecond, 6*time.Second
		h := take(t, s)
		run := beginRunOf(t, h)
		// Two waits, each shorter than a claim's patience.
		time.AfterFunc(4*time.Second, hold(t, direct, schema, "a"))
		time.AfterFunc(8*time.Second, hold(t, direct, schema, "b"))
		wantWon(t, h, claimOf(&run, "a", "b"), true)
		wantHeld(t, h)
	})
}

// The same query on a lock that is gone must not keep it alive.
func TestLease_WhenTheLockIsGoneBehindAQuery_IsLost(t *testing.T) {
	t.Parallel()
	direct, schema := pgtest.Schema(t)
	proxy, via := pgtest.NewProxy(t, direct)
	s := open(t, via, schema)
	wantWon(t, s, claimOf(nil, "tables"), true)
	s.timing.beat, s.timing.deadline, s.timing.cut = 200*time.Millisecond, 4*time.Second, time.Hour
	h := take(t, s)
	run := beginRunOf(t, h)
	hold(t, direct, schema, "a")
	ended := make(chan error, 1)
	go func() {
		_, err := h.Claim(t.Context(), claimOf(&run, "a"))
		ended <- err
	}()
	until(t, "the claim waits", soon, func() bool {
		return len(pgtest.Query(t, direct, "select 1::text from pg_locks where not granted and pid = "+holders(t, direct, schema)[0])) > 0
	})
	// The holder hears nothing of it on the connection in use, and new ones
	// find the server.
	proxy.SilenceOpen()
	terminate(t, direct, schema)
	wantLost(t, h, soon)
	h.lease.conn.Conn().Close()
	if err := <-ended; err == nil {
		t.Error("the claim was won")
	}
}

// Behind a pooler that gives the connection another server process, the lock
// stayed with the first.
func TestLease_WhenAnotherProcessAnswers_IsLost(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Schema(t)
	s := open(t, url, schema)
	s.timing.beat = 50 * time.Millisecond
	c, err := s.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := newLease(c, s.timing, int64(c.PID())+1, time.Now(), nil)
	t.Cleanup(func() { l.stop(); l.close() })
	wantLost(t, &held{lease: l}, soon)
}
