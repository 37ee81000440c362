package schedule

import (
	"math/bits"
	"time"
)

const (
	minuteSeconds = 60
	daySeconds    = 24 * 60 * 60
)

// wall is what a local clock shows, in seconds since it showed 1970-01-01
// 00:00:00. It knows no zone: every day has 24 hours.
type wall int64

// wallSet is the set of wall times, whole minutes, that an expression means.
type wallSet struct {
	minute, hour, dom, month, dow uint64 // bit n: n is in the field; Sunday is 0
	// domStar and dowStar: the field begins with "*", if only as "*/2". Debian's
	// cron then wants both fields to match, else either.
	domStar, dowStar bool
	// fixed: minute and hour are numbers, without "*", ranges or steps.
	fixed bool
}

// cycleYears is after how many years the calendar repeats itself: a set that
// has nothing in them is empty.
const cycleYears = 400

// latest is the latest member that is not after w.
func (s wallSet) latest(w wall) (wall, bool) {
	day, minute := w.split()
	if s.onDay(day) {
		if m, ok := s.latestMinute(minute); ok {
			return join(day, m), true
		}
	}
	last, _ := s.latestMinute(24*60 - 1)
	stop := day.Year() - cycleYears
	for d := day.AddDate(0, 0, -1); d.Year() >= stop; {
		switch {
		case s.onDay(d):
			return join(d, last), true
		case has(s.month, int(d.Month())):
			d = d.AddDate(0, 0, -1)
		default:
			d = time.Date(d.Year(), d.Month(), 0, 0, 0, 0, 0, time.UTC)
		}
	}
	return 0, false
}

// earliest is the earliest member that is not before w.
func (s wallSet) earliest(w wall) (wall, bool) {
	day, minute := (w + minuteSeconds - 1).split()
	if s.onDay(day) {
		if m, ok := s.earliestMinute(minute); ok {
			return join(day, m), true
		}
	}
	first, _ := s.earliestMinute(0)
	stop := day.Year() + cycleYears
	for d := day.AddDate(0, 0, 1); d.Year() <= stop; {
		switch {
		case s.onDay(d):
			return join(d, first), true
		case has(s.month, int(d.Month())):
			d = d.AddDate(0, 0, 1)
		default:
			d = time.Date(d.Year(), d.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		}
	}
	return 0, false
}

func (s wallSet) onDay(d time.Time) bool {
	if !has(s.month, int(d.Month())) {
		return false
	}
	dom, dow := has(s.dom, d.Day()), has(s.dow, int(d.Weekday()))
	if s.domStar || s.dowStar {
		return dom && dow
	}
	return dom || dow
}

// latestMinute is the latest minute of a day that is not after m.
func (s wallSet) latestMinute(m int) (int, bool) {
	if has(s.hour, m/60) {
		if b := s.minute & below(m%60+1); b != 0 {
			return m/60*60 + bits.Len64(b) - 1, true
		}
	}
	b := s.hour & below(m/60)
	return (bits.Len64(b)-1)*60 + bits.Len64(s.minute) - 1, b != 0
}

// earliestMinute is the earliest minute of a day that is not before m.
func (s wallSet) earliestMinute(m int) (int, bool) {
	if has(s.hour, m/60) {
		if b := s.minute &^ below(m%60); b != 0 {
			return m/60*60 + bits.TrailingZeros64(b), true
		}
	}
	b := s.hour &^ below(m/60+1)
	return bits.TrailingZeros64(b)*60 + bits.TrailingZeros64(s.minute), b != 0
}

func has(set uint64, n int) bool { return set>>n&1 == 1 }

// below is the set of the numbers 0 to n-1.
func below(n int) uint64 { return 1<<n - 1 }

// split returns the day, as its midnight in UTC, and the minute of that day.
func (w wall) split() (day time.Time, minute int) {
	of := floorMod(int64(w), daySeconds)
	return time.Unix(int64(w)-of, 0).UTC(), int(of / minuteSeconds)
}

func join(day time.Time, minute int) wall {
	return wall(day.Unix() + int64(minute)*minuteSeconds)
}

// floorMod is the remainder of a division that rounds down, also before 1970.
func floorMod(a, b int64) int64 { return (a%b + b) % b }
