package report

import (
	"fmt"
	"strconv"
	"time"
)

// verdict is what a person reads first.
type verdict struct {
	tone     string // good, look or bad: its colour and its shape
	headline string
	lead     string // one sentence about last night
	look     []string
}

func (r *Report) verdict(order []*lock) verdict {
	v := verdict{tone: "good", headline: "All is well", lead: r.lastNight(), look: r.worthALook(order)}
	switch {
	case len(r.Needs) > 0:
		v.tone, v.headline = "bad", counted(len(r.Needs), "thing needs a person", "things need a person")
	case r.all.runs == 0 && len(r.status.Locks) == 0:
		v.tone, v.headline = "look", "Nothing has run yet"
	case r.late.bad() > 0 || len(v.look) > 0:
		v.tone, v.headline = "look", "Nothing needs a person, but have a look"
	}
	return v
}

// lastNight is a sentence about the runs that began lately.
func (r *Report) lastNight() string {
	n, during := r.late.runs, "the last 24 hours"
	if r.span.since < lately {
		during = "the last " + duration(r.span.since)
	}
	switch {
	case n == 0:
		return "No run began in " + during + "."
	case r.late.by[succeeded] == n:
		return fmt.Sprintf("In %s: %s, and all succeeded.", during, counted(n, "run", "runs"))
	}
	return fmt.Sprintf("In %s: %s. %s.", during, counted(n, "run", "runs"), r.late.words())
}

// mostLook bounds the lines about what is worth a look.
const mostLook = 10

// worthALook names the locks that are late by their own rhythm. It is no
// judgement as that of status --check: a job may have been put off on purpose.
func (r *Report) worthALook(order []*lock) []string {
	var out []string
	more := 0
	for _, l := range order {
		late, silent := l.late(r.status.At)
		switch {
		case late && len(out) < mostLook:
			most, _ := l.rhythm.most()
			out = append(out, fmt.Sprintf("lock %s: no run has begun for %s; until then at most %s passed between its runs",
				strconv.Quote(l.name), duration(silent), duration(most)))
		case late:
			more++
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more locks are late in the same way", more))
	}
	return out
}

// duration is d as a person reads it: two units at most.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d.Round(time.Second) < time.Minute:
		return d.Round(time.Second).String()
	case d.Round(time.Second) < time.Hour:
		return units(d.Round(time.Second), time.Minute, "m", time.Second, "s")
	case d.Round(time.Minute) < 2*day:
		return units(d.Round(time.Minute), time.Hour, "h", time.Minute, "m")
	}
	return units(d.Round(time.Hour), day, "d", time.Hour, "h")
}

func units(d, large time.Duration, l string, small time.Duration, s string) string {
	text := strconv.Itoa(int(d/large)) + l
	if rest := int(d % large / small); rest > 0 {
		text += strconv.Itoa(rest) + s
	}
	return text
}

// counted is n of something.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}
