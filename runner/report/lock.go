package report

import (
	"time"

	"github.com/oncectl/oncectl/runner"
)

// lock is what the report knows of the locks of one name.
type lock struct {
	name        string
	last        runner.PastRun // the latest of all time
	lastSuccess time.Time
	all         figures
	bins        []*bin // those with runs
	rhythm      rhythm
}

// bin sums up the runs that began in one part of the span.
type bin struct {
	at int // its number
	figures
	first *runner.PastRun // the one that there is, or one of them
}

func (l *lock) add(s *runner.LockState) {
	if s.Last.ID > l.last.ID {
		l.last = s.Last
	}
	if s.LastSuccess.After(l.lastSuccess) {
		l.lastSuccess = s.LastSuccess
	}
}

// see takes notice of a run, and returns the figures of the bin it is in. Runs
// come latest first, so that the bin is nearly always the last one, or new.
func (l *lock) see(r *runner.PastRun, at int) *figures {
	if r.ID > l.last.ID {
		l.last = *r // it began after the status was read
	}
	l.rhythm.add(r.StartedAt)
	for i := len(l.bins) - 1; i >= 0; i-- {
		if l.bins[i].at == at {
			return &l.bins[i].figures
		}
	}
	b := &bin{at: at, first: r}
	l.bins = append(l.bins, b)
	return &b.figures
}

// rank orders locks by how much there is to see.
func (l *lock) rank(now time.Time) int {
	late, _ := l.late(now)
	switch {
	case l.last.Outcome == runner.RunUnknown:
		return 0
	case isBad(l.last.Outcome) || late:
		return 1
	case l.all.bad() > 0:
		return 2
	case l.all.runs > 0:
		return 3
	}
	return 4
}

// late tells whether the lock has had no run for more than twice as long as ever
// passed between its runs, and how long that is.
func (l *lock) late(now time.Time) (bool, time.Duration) {
	most, ok := l.rhythm.most()
	silent := now.Sub(l.last.StartedAt)
	return ok && l.last.Outcome != runner.RunRunning && silent > 2*most, silent
}

// rhythm finds out whether runs come regularly.
type rhythm struct {
	count           int // of starts
	earliest, first time.Time
	longest         time.Duration
}

// add takes in the starts of runs, latest first.
func (r *rhythm) add(start time.Time) {
	if r.count++; r.count == 1 {
		r.first = start
	} else {
		r.longest = max(r.longest, r.earliest.Sub(start))
	}
	r.earliest = start
}

// most is how long passes at most between two runs. Runs are regular if there
// are a few, not in a burst, and none is far from the mean: a job that a person
// starts now and then is never late.
func (r *rhythm) most() (time.Duration, bool) {
	if r.count < 4 {
		return 0, false
	}
	mean := r.first.Sub(r.earliest) / time.Duration(r.count-1)
	return r.longest, mean >= time.Minute && r.longest <= 2*mean
}
