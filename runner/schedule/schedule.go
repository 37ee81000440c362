// Package schedule finds the tick that a moment belongs to: the one scheduled
// firing of a job whose time names the run, so that every host that fires for
// it asks for the same key. It reads no clock; the caller hands in the
// database's.
package schedule

import (
	"fmt"
	"math"
	"time"

	"github.com/oncectl/oncectl/runner"
)

const (
	// mostEarly is how far ahead a tick counts as due (contract, section 4): a
	// host whose clock runs ahead by less does not mistake today for yesterday.
	mostEarly = 5 * time.Second
	// earlyShare bounds that for ticks which are close together: at most one
	// part in earlyShare of the interval.
	earlyShare = 4
)

// farAway bounds the search for a tick, in seconds: the calendar repeats itself
// every 400 years, which have 146097 days.
const farAway = 146097 * daySeconds

var _ runner.Ticker = (*Schedule)(nil)

// Schedule is a cron expression in a time zone. It is immutable, and safe for
// concurrent use.
type Schedule struct {
	expr string
	set  wallSet
	zone zone
}

// Tick is one scheduled firing of a job.
type Tick struct{ at time.Time }

// At is the tick's time, in UTC.
func (t Tick) At() time.Time { return t.at }

// Key names the tick: its time in UTC, RFC 3339.
func (t Tick) Key() string { return runner.TickKey(t.at) }

// Parse reads a cron expression that is meant in the time zone tz: "" or
// "Local" for the host's own, else whatever $TZ may hold short of a POSIX rule
// (a name such as "Europe/Berlin", with or without a colon before it, or the
// absolute path of a zone file). Errors wrap runner.ErrInvalid.
func Parse(expr, tz string) (*Schedule, error) {
	loc, err := loadZone(tz)
	if err != nil {
		return nil, err
	}
	return ParseIn(expr, loc)
}

// ParseIn reads a cron expression that is meant in loc: five fields as Debian's
// cron reads them, or one of @hourly, @daily, @midnight, @weekly, @monthly,
// @yearly and @annually. The error wraps runner.ErrInvalid and names the
// expression and the field at fault; one that never fires is refused.
func ParseIn(expr string, loc *time.Location) (*Schedule, error) {
	set, err := parseExpr(expr)
	if err != nil {
		return nil, fmt.Errorf("cron expression %s: %w: %w", quoteShort(expr), runner.ErrInvalid, err)
	}
	return &Schedule{expr: expr, set: set, zone: zone{loc}}, nil
}

// String is the expression and its time zone, for messages.
func (s *Schedule) String() string {
	return fmt.Sprintf("%q in time zone %s", s.expr, s.zone.loc)
}

// TickAt is Tick for runner.Ticker.
func (s *Schedule) TickAt(now time.Time) (time.Time, bool) {
	t, ok := s.Tick(now)
	return t.at, ok
}

// Tick returns the tick that now belongs to: the latest that is not after now,
// or the next where it is due within 5 s and within a quarter of the interval
// between the two. It is false where none lies in the 400 years before now or in
// the years 1 to 9999, which RFC 3339 can write: never in practice.
func (s *Schedule) Tick(now time.Time) (Tick, bool) {
	if !writable(now) {
		return Tick{}, false
	}
	last, ok := s.last(now.Unix())
	if next, ahead := s.next(now.Unix()); ahead {
		interval := time.Duration(math.MaxInt64)
		if ok {
			interval = next.Sub(last)
		}
		if next.Sub(now) <= early(interval) {
			last, ok = next, true
		}
	}
	if !ok || !writable(last) {
		return Tick{}, false
	}
	return Tick{last}, true
}

// Next returns the first tick after now, however near, and false if none lies in
// the 400 years ahead: summer time may skip every hour that an expression means.
func (s *Schedule) Next(now time.Time) (Tick, bool) {
	if !writable(now) {
		return Tick{}, false
	}
	at, ok := s.next(now.Unix())
	if !ok || !writable(at) {
		return Tick{}, false
	}
	return Tick{at}, true
}

// early is how long before its time a tick counts as due, interval after the
// one before it.
func early(interval time.Duration) time.Duration {
	return min(mostEarly, interval/earlyShare)
}

// writable reports whether t is in the years 1 to 9999.
func writable(t time.Time) bool {
	const year1, year10000 = -62135596800, 253402300800 // date -ud 10000-01-01 +%s
	return year1 <= t.Unix() && t.Unix() < year10000
}

// last is the latest tick not after now, in Unix seconds.
func (s *Schedule) last(now int64) (time.Time, bool) {
	if s.set.fixed {
		w, ok := s.set.latest(s.zone.reached(now))
		if !ok {
			return time.Time{}, false
		}
		return utc(s.zone.firstAt(w)), true
	}
	for t := now; t > now-farAway; {
		sp := s.zone.span(t)
		w, ok := s.set.latest(wall(t + sp.offset))
		switch at := int64(w) - sp.offset; {
		case !ok:
			return time.Time{}, false
		case at >= sp.start:
			return utc(at), true
		}
		t = sp.start - 1
	}
	return time.Time{}, false
}

// next is the first tick after now, in Unix seconds.
func (s *Schedule) next(now int64) (time.Time, bool) {
	if s.set.fixed {
		w, ok := s.set.earliest(s.zone.reached(now) + 1)
		if !ok {
			return time.Time{}, false
		}
		return utc(s.zone.firstAt(w)), true
	}
	for t := now + 1; t < now+farAway; {
		sp := s.zone.span(t)
		w, ok := s.set.earliest(wall(t + sp.offset))
		switch at := int64(w) - sp.offset; {
		case !ok:
			return time.Time{}, false
		case at < sp.end:
			return utc(at), true
		}
		t = sp.end
	}
	return time.Time{}, false
}

func utc(unix int64) time.Time { return time.Unix(unix, 0).UTC() }
