// Package report makes one HTML page of what a store shows: whether last night
// was good, what needs a person, and how each lock's runs went. The page is
// whole in itself: no script, and nothing that is loaded from elsewhere.
//
// What it takes in is bounded, so that 100,000 runs make a page that a browser
// opens at once: a chart has at most mostBins marks, there are at most
// MostCharts of them, and tables end after MostRows or MostLocks rows and say
// so. The figures are those of all runs, never of what is shown.
package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/oncectl/oncectl/runner"
)

const (
	// MostCharts is how many locks have a chart: those with the most to say.
	MostCharts = 60
	// MostLocks is how many locks have figures of their own: those that were
	// in use last. The runs of all others are summed up in one row.
	MostLocks = 1000
	// MostRows is how many rows the tables of runs, dead letters and events in
	// doubt have: the latest.
	MostRows = 250
	// lately is the time that the verdict at the top is about.
	lately = 24 * time.Hour
)

// Need is something that needs a person.
type Need struct{ Message, Do string }

// Report takes in what a store shows, and writes the page.
type Report struct {
	// Store and Version say what was looked at, and by what.
	Store, Version string
	Needs          []Need

	status runner.Status
	span   span
	locks  map[string]*lock
	all    figures // of all runs
	late   figures // of those that began lately
	rest   figures // of those of locks beyond MostLocks
	latest []*runner.PastRun
	bad    []*runner.PastRun // the latest that ended otherwise than well

	letters tail[*runner.DeadLetter]
	doubts  tail[*runner.Claim]
}

// New begins a report on what began since before the status was read.
func New(status runner.Status, since time.Duration) *Report {
	r := &Report{status: status, span: newSpan(status.At, since), locks: map[string]*lock{}}
	states := make([]*runner.LockState, len(status.Locks))
	for i := range states {
		states[i] = &status.Locks[i]
	}
	slices.SortFunc(states, moreToSay)
	for _, s := range states {
		if l := r.lock(s.Lock.Name); l != nil {
			l.add(s)
		}
	}
	return r
}

// moreToSay orders locks so that those which need a person come first, then
// those that were in use last.
func moreToSay(a, b *runner.LockState) int {
	switch unknown := a.Last.Outcome == runner.RunUnknown; {
	case unknown == (b.Last.Outcome == runner.RunUnknown):
		return b.Last.StartedAt.Compare(a.Last.StartedAt)
	case unknown:
		return -1
	}
	return 1
}

// lock is the lock of that name; nil where there are too many.
func (r *Report) lock(name string) *lock {
	l := r.locks[name]
	if l == nil && len(r.locks) < MostLocks {
		l = &lock{name: name}
		r.locks[name] = l
	}
	return l
}

// AddRun takes in a run. They come as runner.History gives them, latest first.
func (r *Report) AddRun(run runner.PastRun) error {
	one, sums := &run, []*figures{&r.all}
	if r.status.At.Sub(run.StartedAt) <= lately {
		sums = append(sums, &r.late)
	}
	if l := r.lock(run.Lock.Name); l != nil {
		sums = append(sums, &l.all, l.see(one, r.span.bin(run.StartedAt)))
	} else {
		sums = append(sums, &r.rest)
	}
	for _, f := range sums {
		f.add(one)
	}
	if len(r.latest) < MostRows {
		r.latest = append(r.latest, one)
	}
	if isBad(run.Outcome) && len(r.bad) < MostRows {
		r.bad = append(r.bad, one)
	}
	return nil
}

// AddDeadLetter takes in an unresolved dead letter; they come oldest first.
func (r *Report) AddDeadLetter(d runner.DeadLetter) error {
	d.Payload, d.Request = nil, nil // nothing of them is shown
	d.LastError = cut(firstLine(d.Reason()), 300)
	r.letters.add(&d)
	return nil
}

// AddDoubt takes in an event in doubt; they come oldest first.
func (r *Report) AddDoubt(c runner.Claim) error {
	r.doubts.add(&c)
	return nil
}

// sorted are the locks, those with the most to say first.
func (r *Report) sorted() []*lock {
	all := make([]*lock, 0, len(r.locks))
	for _, l := range r.locks {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *lock) int {
		if c := cmp.Compare(a.rank(r.status.At), b.rank(r.status.At)); c != 0 {
			return c
		}
		return cmp.Compare(a.name, b.name)
	})
	return all
}

// tail keeps the last MostRows of what comes, and counts all.
type tail[T any] struct {
	kept  []T
	count int
}

func (t *tail[T]) add(v T) {
	if len(t.kept) < MostRows {
		t.kept = append(t.kept, v)
	} else {
		t.kept[t.count%MostRows] = v
	}
	t.count++
}

// latestFirst are those that were kept.
func (t *tail[T]) latestFirst() []T {
	out := make([]T, 0, len(t.kept))
	for i := range t.kept {
		out = append(out, t.kept[(t.count-1-i)%MostRows])
	}
	return out
}
