package pgstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// A primary, its hot standby, and the ways in which a client may come upon
// them.
func TestHosts(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, "hot_standby = on")
	standby := primary.Standby(t)
	tests := map[string]func(*testing.T, *pgtest.Server, *pgtest.Server){
		"WhenItIsAStandby_IsRefused":                               testStandby,
		"WhenDeadThenStandbyThenPrimary_UsesThePrimary":            testHostList,
		"WhenABalancerGivesAStandby_IsRefusedAndNotRun":            testBalancer,
		"WhenThePoolerLeadsToAStandby_TriesAgainUntilItIsAPrimary": testPoolerSwitches,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, primary, standby) })
	}
}

// wantRefused wants locks and claims refused by a store at url.
func wantRefused(t *testing.T, url, why string) {
	t.Helper()
	s := openWith(t, Config{ConnString: url, Schema: "refused", StoreWait: time.Second})
	_, err := s.TryLock(t.Context(), nightly("refused"))
	wantErr(t, "TryLock", err, runner.ErrRefused)
	if !strings.Contains(err.Error(), why) {
		t.Errorf("TryLock() = %v, want a word on %q", err, why)
	}
	_, err = s.Claim(t.Context(), claimOf(nil, "a"))
	wantErr(t, "Claim", err, runner.ErrRefused)
	if !strings.Contains(err.Error(), why) {
		t.Errorf("Claim() = %v, want a word on %q", err, why)
	}
}

func testStandby(t *testing.T, _, standby *pgtest.Server) {
	wantRefused(t, standby.URL(), "hot standby")
	for _, mode := range []string{"transaction", "session"} {
		wantRefused(t, pgtest.Bouncer(t, standby.URL(), mode), "hot standby")
	}
}

func testHostList(t *testing.T, primary, standby *pgtest.Server) {
	// One that refuses connections and one that accepts them and is silent.
	proxy, _ := pgtest.NewProxy(t, primary.URL())
	proxy.Silence(true)
	list := fmt.Sprintf("%s,%s,%s,%s", at(pgtest.FreePort(t)), proxy, at(standby.Port), at(primary.Port))
	for i, query := range []string{"", "&target_session_attrs=read-write", "&target_session_attrs=primary"} {
		schema := fmt.Sprint("hosts", i)
		began := time.Now()
		s := open(t, "postgres://postgres@"+list+"/postgres?sslmode=disable"+query, schema)
		h := take(t, s)
		run := beginRunOf(t, h)
		wantWon(t, h, claimOf(&run, "a"), true)
		wantWon(t, s, claimOf(nil, "a"), false)
		if took := time.Since(began); took > soon {
			t.Errorf("%q: it took %v to find the primary", query, took)
		}
		if n := len(holders(t, primary.URL(), schema)); n != 1 {
			t.Errorf("%q: %d processes of the primary hold the lock", query, n)
		}
	}
}

func testBalancer(t *testing.T, primary, standby *pgtest.Server) {
	servers := []int{primary.Port, standby.Port}
	_, via := balance(t, primary.URL(), func(n int) string { return at(servers[n%2]) })
	// With a pooler on the way the server's state is not told at connect time.
	_, behind := balance(t, pgtest.Bouncer(t, primary.URL(), "transaction"), func() func(n int) string {
		a, b := pgtest.Bouncer(t, primary.URL(), "transaction"), pgtest.Bouncer(t, standby.URL(), "transaction")
		return func(n int) string { return []string{hostOf(a), hostOf(b)}[n%2] }
	}())
	for what, url := range map[string]string{"directly": via, "through poolers": behind} {
		var locks, refused int
		for i := range 12 {
			schema := fmt.Sprintf("balanced_%s_%d", what[:3], i)
			s := openWith(t, Config{ConnString: url, Schema: schema, StoreWait: time.Second})
			h, err := s.TryLock(t.Context(), nightly(schema))
			if err == nil {
				_, err = h.Begin(t.Context(), beginRequest())
				if n := len(holders(t, primary.URL(), schema)); n != 1 {
					t.Errorf("%s: %d processes of the primary hold a lock that was given", what, n)
				}
				_ = h.Release(t.Context())
			}
			switch {
			case err == nil:
				locks++
			case errors.Is(err, runner.ErrRefused) && strings.Contains(err.Error(), "hot standby"):
				refused++
			default:
				t.Errorf("%s: %v, want the lock or a refusal", what, err)
			}
		}
		if refused == 0 {
			t.Errorf("%s: no connection was led to the standby: %d locks", what, locks)
		}
	}
}

// A pooler whose server was switched over answers from the standby for a while:
// neither a duplicate nor an error, as long as there is time.
func testPoolerSwitches(t *testing.T, primary, standby *pgtest.Server) {
	b, url := balance(t, primary.URL(), always(primary.Port))
	via := pgtest.Bouncer(t, url, "transaction", "server_login_retry = 0", "ignore_startup_parameters = extra_float_digits")
	s := open(t, via, "switched")
	wantWon(t, s, claimOf(nil, "a"), true)
	until(t, "the standby has the tables", soon, func() bool {
		return len(pgtest.Query(t, standby.URL(), "select nspname from pg_namespace where nspname = 'switched'")) == 1
	})
	b.switchTo(always(standby.Port))
	before := b.count()
	type answer struct {
		won []bool
		err error
	}
	got := make(chan answer, 1)
	go func() {
		won, err := s.Claim(t.Context(), claimOf(nil, "b"))
		got <- answer{won, err}
	}()
	until(t, "the pooler has asked the standby", soon, func() bool { return b.count() > before })
	select {
	case a := <-got:
		t.Fatalf("Claim() = %v, %v while there is only the standby", a.won, a.err)
	case <-time.After(time.Second): // tries again meanwhile
	}
	b.switchTo(always(primary.Port))
	if a := <-got; a.err != nil || !a.won[0] {
		t.Errorf("Claim() = %v, %v, want it won on the primary", a.won, a.err)
	}
}
