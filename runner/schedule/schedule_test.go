package schedule

import (
	"testing"
	"time"
)

func mustParse(t interface {
	Helper()
	Fatalf(string, ...any)
}, expr, tz string) *Schedule {
	t.Helper()
	s, err := Parse(expr, tz)
	if err != nil {
		t.Fatalf("Parse(%q, %q): %v", expr, tz, err)
	}
	return s
}

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestTick_WhenNowIsNearATick_ReturnsTheOneItBelongsTo(t *testing.T) {
	const yesterday, today = "2026-11-30T03:00:00Z", "2026-12-01T03:00:00Z"
	for _, c := range []struct{ name, expr, now, want string }{
		{"a second after", "0 3 * * *", "2026-12-01T03:00:01Z", today},
		{"at the tick", "0 3 * * *", "2026-12-01T03:00:00Z", today},
		{"a nanosecond before", "0 3 * * *", "2026-12-01T02:59:59.999999999Z", today},
		{"a second before", "0 3 * * *", "2026-12-01T02:59:59Z", today},
		{"3 s before, as by a clock ahead", "0 3 * * *", "2026-12-01T02:59:57Z", today},
		{"5.000 s before", "0 3 * * *", "2026-12-01T02:59:55Z", today},
		{"5.001 s before", "0 3 * * *", "2026-12-01T02:59:54.999Z", yesterday},
		{"3 min before", "0 3 * * *", "2026-12-01T02:57:00Z", yesterday},
		{"a second before the next", "0 3 * * *", "2026-12-02T02:59:54Z", today},
		{"every minute, in its middle", "* * * * *", "2026-12-01T03:00:30Z", today},
		{"every minute, 5.001 s before the next", "* * * * *", "2026-12-01T03:00:54.999Z", today},
		{"every minute, 5.000 s before the next", "* * * * *", "2026-12-01T03:00:55Z", "2026-12-01T03:01:00Z"},
		{"a rare day", "0 0 29 2 *", "2027-06-01T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"a rare day over a century without one", "0 0 29 2 *", "1903-12-31T23:00:00Z", "1896-02-29T00:00:00Z"},
		{"the turn of the year", "59 23 31 12 *", "2026-12-31T23:58:50Z", "2025-12-31T23:59:00Z"},
		{"years of misses", "0 3 * * *", "2036-12-01T12:00:00Z", "2036-12-01T03:00:00Z"},
		{"before 1970", "0 3 * * *", "1969-07-20T02:00:00.5Z", "1969-07-19T03:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := mustParse(t, c.expr, "UTC").Tick(instant(t, c.now))
			if !ok || got.Key() != c.want {
				t.Errorf("Tick(%s) of %q = %s, %v; want %s", c.now, c.expr, got.Key(), ok, c.want)
			}
			if got.At() != instant(t, c.want) {
				t.Errorf("At() = %v, want %s in UTC", got.At(), c.want)
			}
		})
	}
}

func TestTick_WhenTwoHostsFireForOne_GivesBothTheSameKey(t *testing.T) {
	s := mustParse(t, "*/10 * * * *", "Europe/Berlin")
	tick := instant(t, "2026-12-01T03:10:00Z")
	for _, after := range []time.Duration{-3 * time.Second, 0, 10 * time.Millisecond, 3 * time.Second, 3 * time.Minute} {
		// Whatever zone the database's clock is handed over in.
		now := tick.Add(after).In(time.FixedZone("", 5*3600))
		if got, _ := s.Tick(now); got.Key() != "2026-12-01T03:10:00Z" {
			t.Errorf("%v after the tick its key is %s", after, got.Key())
		}
	}
}

func TestEarly_WhenTicksAreClose_IsAQuarterOfTheInterval(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		24 * time.Hour:   5 * time.Second,
		time.Minute:      5 * time.Second,
		20 * time.Second: 5 * time.Second,
		19 * time.Second: 4750 * time.Millisecond,
		4 * time.Second:  time.Second,
	} {
		if got := early(interval); got != want {
			t.Errorf("early(%v) = %v, want %v", interval, got, want)
		}
	}
}

// Ticks are less than a minute apart only where a clock is set forward by odd
// seconds, as some were when they left local mean time.
func TestTick_WhenTicksAreSecondsApart_CountsAQuarterAsEarly(t *testing.T) {
	s, err := ParseIn("0,1 0 * * *", oddZone(t))
	if err != nil {
		t.Fatal(err)
	}
	const skipped, regular = "2000-01-02T00:00:00Z", "2000-01-02T00:00:12Z"
	for now, want := range map[string]string{
		"2000-01-02T00:00:08.999Z": skipped,
		"2000-01-02T00:00:09Z":     regular,
		"2000-01-02T00:00:12Z":     regular,
	} {
		if got, _ := s.Tick(instant(t, now)); got.Key() != want {
			t.Errorf("Tick(%s) = %s, want %s", now, got.Key(), want)
		}
	}
}

func TestNext_WhenATickIsNear_IsStillAfterNow(t *testing.T) {
	s := mustParse(t, "0 3 * * *", "UTC")
	for now, want := range map[string]string{
		"2026-12-01T02:59:59.5Z": "2026-12-01T03:00:00Z",
		"2026-12-01T03:00:00Z":   "2026-12-02T03:00:00Z",
		"2026-12-01T03:00:00.1Z": "2026-12-02T03:00:00Z",
	} {
		if got, ok := s.Next(instant(t, now)); !ok || got.Key() != want {
			t.Errorf("Next(%s) = %s, %v; want %s", now, got.Key(), ok, want)
		}
	}
}

func TestNext_WhenSummerTimeSkipsEveryOne_ReturnsFalse(t *testing.T) {
	// 2 o'clock on the last Sunday of March has not been shown since 1981.
	s := mustParse(t, "* 2 25-31 3 */7", "Europe/Berlin")
	now := instant(t, "2026-12-01T00:00:00Z")
	if got, ok := s.Next(now); ok {
		t.Errorf("Next = %s, want none", got.Key())
	}
	if got, ok := s.Tick(now); !ok || got.At().Year() > 1980 {
		t.Errorf("Tick = %s, %v; want one before summer time", got.Key(), ok)
	}
	if got, ok := s.Tick(now.AddDate(5000, 0, 0)); ok {
		t.Errorf("Tick = %s, want none within 400 years", got.Key())
	}
}

func TestTick_WhenTheYearCannotBeWritten_ReturnsFalse(t *testing.T) {
	s := mustParse(t, "0 0 29 2 *", "UTC")
	for _, now := range []time.Time{
		{}, time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(1<<62, 0), time.Unix(-1<<62, 0),
	} {
		if got, ok := s.Tick(now); ok {
			t.Errorf("Tick(%v) = %s, want none", now, got.Key())
		}
	}
	if got, ok := s.TickAt(time.Date(4, 3, 1, 0, 0, 0, 0, time.UTC)); !ok || got.Year() != 4 {
		t.Errorf("TickAt = %v, %v; want year 4", got, ok)
	}
}

func TestString_WhenPrinted_NamesExpressionAndZone(t *testing.T) {
	if got, want := mustParse(t, "@daily", "Europe/Berlin").String(), `"@daily" in time zone Europe/Berlin`; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}
