package schedule

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"strings"
	"time"

	"github.com/oncectl/oncectl/runner"
	_ "github.com/oncectl/oncectl/runner/schedule/zones" // so that names work on hosts and in images without tzdata
)

// loadZone returns the time zone that tz names, in the forms that $TZ takes but
// for a POSIX rule, which package time cannot read.
func loadZone(tz string) (*time.Location, error) {
	name := strings.TrimPrefix(tz, ":")
	if name == "" || name == "Local" {
		return time.Local, nil
	}
	load := time.LoadLocation
	if path.IsAbs(name) {
		load = loadZoneFile
	}
	loc, err := load(name)
	if err != nil {
		// The cause is left out: it is a path in the place that was looked at last.
		return nil, fmt.Errorf("time zone %s: %w: no such zone is known; take a name such as Europe/Berlin, America/New_York or UTC",
			quoteShort(tz), runner.ErrInvalid)
	}
	return loc, nil
}

// mostZoneFile is far above the size of a zone file (4 KiB), and keeps a device
// or a wrong path from being read without end.
const mostZoneFile = 1 << 20

func loadZoneFile(name string) (*time.Location, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostZoneFile {
		return nil, errors.New("not a zone file")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(name, data)
}

// zone maps between instants, in Unix seconds, and what a local clock shows.
type zone struct{ loc *time.Location }

// mostOffset is above every zone's distance from UTC, in seconds. The greatest
// in the tz database is 15:56:08 (Asia/Manila before 1844); zone files shall stay
// between 25 hours behind and 26 ahead (RFC 9636, "utoff").
const mostOffset = 26 * 60 * 60

// span is a stretch of time, start included and end not, in which the local
// clock runs at a fixed offset from UTC. Neighbours may have the same offset.
type span struct{ offset, start, end int64 }

func (z zone) span(t int64) span {
	at := time.Unix(t, 0).In(z.loc)
	_, offset := at.Zone()
	s := span{offset: int64(offset), start: math.MinInt64, end: math.MaxInt64}
	start, end := at.ZoneBounds()
	if !start.IsZero() {
		s.start = start.Unix()
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if s.end <= t {
		// Beyond the recorded changes, package time ends every year after 365
		// days, so that the last day of a leap year is outside its own bounds.
		s.end = t + daySeconds - floorMod(t, daySeconds)
	}
	return s
}

// reached is the latest time that the local clock has shown by now. It is ahead
// of the clock for as long as a time that was put back is being repeated.
func (z zone) reached(now int64) wall {
	sp := z.span(now)
	w := now + sp.offset
	for t := sp.start - 1; sp.start > now-2*mostOffset; t = sp.start - 1 {
		sp = z.span(t)
		w = max(w, t+sp.offset)
	}
	return wall(w)
}

// firstAt is the first instant at which the local clock shows w or, where it
// never does, has gone past it.
func (z zone) firstAt(w wall) int64 {
	for t := int64(w) - mostOffset; ; {
		sp := z.span(t)
		if at := int64(w) - sp.offset; at < sp.end {
			return max(at, t)
		}
		t = sp.end
	}
}
