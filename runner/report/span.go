package report

import "time"

// mostBins is how many parts a span has at most: as many as there is room for
// on a telephone.
const mostBins = 60

// steps are the widths that a part may have; above, it is of whole days.
var steps = [...]time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

const day = 24 * time.Hour

// span is the time that a report is about, in parts that begin at round times
// in UTC.
type span struct {
	from, to time.Time
	since    time.Duration
	start    time.Time // of the first part
	step     time.Duration
	bins     int
}

// mostSince is longer than any store has been in use: what is beyond it would
// overflow a time.Duration when it is rounded up.
const mostSince = 36500 * day

func newSpan(to time.Time, since time.Duration) span {
	since = min(since, mostSince)
	s := span{from: to.Add(-since).UTC(), to: to.UTC(), since: since}
	s.step = (since/((mostBins-1)*day) + 1) * day
	for _, step := range steps {
		if since <= (mostBins-1)*step { // one more for where it begins
			s.step = step
			break
		}
	}
	s.start = s.from.Truncate(s.step)
	s.bins = min(int(s.to.Sub(s.start)/s.step)+1, mostBins)
	return s
}

// bin is the number of the part that t is in. A run that began while we looked
// is in the last one.
func (s *span) bin(t time.Time) int {
	return min(max(int(t.Sub(s.start)/s.step), 0), s.bins-1)
}

// begins is when a part begins.
func (s *span) begins(bin int) time.Time { return s.start.Add(time.Duration(bin) * s.step) }

// place is where t lies, in percent of the width.
func (s *span) place(t time.Time) float64 {
	return 100 * float64(t.Sub(s.start)) / (float64(s.step) * float64(s.bins))
}

// tick is a mark of the axis.
type tick struct {
	at    float64 // in percent
	label string
	class string // "edge": on a telephone there is no room for the label
}

// ticks are at most eight, at round times. One so near to the right edge that its
// label would not fit has none.
func (s *span) ticks() []tick {
	step, layout := s.tickStep()
	var out []tick
	for t := s.start.Truncate(step); !t.After(s.to); t = t.Add(step) {
		k := tick{at: s.place(t)}
		if k.at < 96 {
			k.label = t.Format(layout)
		}
		if k.at > 88 {
			k.class = "edge"
		}
		if k.at >= 0 {
			out = append(out, k)
		}
	}
	return out
}

func (s *span) tickStep() (step time.Duration, layout string) {
	const most = 8
	width := time.Duration(s.bins) * s.step
	if width > 2*day {
		layout = "Jan 2"
		if width > 300*day {
			layout = "Jan 2006"
		}
		return (width/(most*day) + 1) * day, layout
	}
	layout = "15:04"
	if width <= 5*time.Minute {
		layout = "15:04:05"
	}
	for _, step = range steps {
		if width/step < most {
			break
		}
	}
	return step, layout
}
