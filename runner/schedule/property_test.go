package schedule

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncectl/oncectl/runner"
)

// drawMoment draws a zone and a moment in it, mostly near a change of its clock.
func drawMoment(t *rapid.T) (*time.Location, time.Time) {
	name := rapid.SampledFrom([]string{
		"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "America/Sao_Paulo",
		"Pacific/Apia", "Pacific/Chatham", "Antarctica/Troll", "Africa/Casablanca", "Europe/Dublin", "Asia/Kathmandu", "Pacific/Kwajalein",
	}).Draw(t, "zone")
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(rapid.Int64Range(
		time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC).Unix(),
		time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC).Unix(),
	).Draw(t, "moment"), 0)
	if _, change := at.In(loc).ZoneBounds(); !change.IsZero() && rapid.IntRange(0, 4).Draw(t, "near") > 0 {
		at = change
	}
	return loc, at.Add(time.Duration(rapid.Int64Range(-int64(36*time.Hour), int64(36*time.Hour)).Draw(t, "apart"))).UTC()
}

func drawSchedule(t *rapid.T, loc *time.Location) (*Schedule, plan) {
	p := drawPlan(t)
	s, err := ParseIn(p.expr, loc)
	if errors.Is(err, runner.ErrInvalid) && !p.fires() {
		t.Skip("never fires")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

// fires looks through the days of 28 years around a leap century, in which each
// date comes with each day of the week.
func (p plan) fires() bool {
	p.in[0], p.in[1] = map[int]bool{0: true}, map[int]bool{0: true}
	for d := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() < 2018; d = d.AddDate(0, 0, 1) {
		if p.means(d) {
			return true
		}
	}
	return false
}

func TestTick_WhenComparedMinuteByMinute_MissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc, now := drawMoment(t)
		s, p := drawSchedule(t, loc)
		if s.set.fixed != p.fixed {
			t.Fatalf("fixed is %v, want %v", s.set.fixed, p.fixed)
		}
		from, to := now.Add(-72*time.Hour).Truncate(time.Minute), now.Add(72*time.Hour).Truncate(time.Minute)
		var last, next time.Time
		for _, at := range p.ticks(loc, from, to) {
			if !at.After(now) {
				last = at
			} else if next.IsZero() {
				next = at
			}
		}
		got, ok := s.Next(now)
		if next.IsZero() != (!ok || !got.At().Before(to)) || !next.IsZero() && !got.At().Equal(next) {
			t.Fatalf("the next of %q after %v is %s, want %v", p.expr, now, got.Key(), next)
		}
		want := last
		if !next.IsZero() && next.Sub(now) <= 5*time.Second {
			want = next // ticks are a minute apart here, of which 5 s is no quarter
		}
		got, ok = s.Tick(now)
		if !ok || want.IsZero() && !got.At().Before(from) || !want.IsZero() && !got.At().Equal(want) {
			t.Fatalf("the tick of %q at %v is %s, %v; want %v", p.expr, now, got.Key(), ok, want)
		}
	})
}

func TestTick_WhenAskedTwice_IsStableAndMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc, now := drawMoment(t)
		s, p := drawSchedule(t, loc)
		tick, ok := s.Tick(now)
		if !ok || tick.At().After(now.Add(5*time.Second)) {
			t.Fatalf("the tick of %q at %v is %s, %v", p.expr, now, tick.Key(), ok)
		}
		if again, _ := s.Tick(tick.At()); again != tick {
			t.Fatalf("the tick of %q at its own time, %s, is %s", p.expr, tick.Key(), again.Key())
		}
		later := now.Add(time.Duration(rapid.Int64Range(0, int64(72*time.Hour)).Draw(t, "later")))
		if then, _ := s.Tick(later); then.At().Before(tick.At()) {
			t.Fatalf("the tick of %q goes back from %s to %s as time goes on to %v", p.expr, tick.Key(), then.Key(), later)
		}
		if next, ok := s.Next(now); ok && next.At().Before(tick.At()) {
			t.Fatalf("the next of %q, %s, is before its tick, %s", p.expr, next.Key(), tick.Key())
		}
	})
}

func BenchmarkTick(b *testing.B) {
	now := time.Date(2026, 12, 1, 3, 0, 1, 0, time.UTC)
	for _, expr := range []string{"* * * * *", "0 3 * * *", "*/5 9-17 * * mon-fri", "0 0 29 2 *", "*/5 0 */29 2 */8", "* 2 25-31 3 */7"} {
		b.Run(expr, func(b *testing.B) {
			s := mustParse(b, expr, "Europe/Berlin")
			for b.Loop() {
				s.Tick(now)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		mustParse(b, "*/5 9-17 * * mon-fri", "Europe/Berlin")
	}
}
