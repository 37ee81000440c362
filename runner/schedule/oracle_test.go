package schedule

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// plan is an expression made at random, and what it means by its making rather
// than by its parsing.
type plan struct {
	expr             string
	in               [5]map[int]bool
	domStar, dowStar bool
	fixed            bool
}

var fieldRanges = [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}}

func drawPlan(t *rapid.T) plan {
	var p plan
	var text [5]string
	numbersOnly := true
	for i, r := range fieldRanges {
		p.in[i] = map[int]bool{}
		star := rapid.Bool().Draw(t, "star")
		if i >= 2 {
			// Days that are all restricted would hardly ever meet.
			star = rapid.IntRange(0, 3).Draw(t, "star") > 0
		}
		if star {
			text[i] = drawElement(t, 0, r, p.in[i])
			numbersOnly = numbersOnly && i >= 2
		} else {
			var parts []string
			for range rapid.IntRange(1, 4).Draw(t, "elements") {
				kind := rapid.SampledFrom([]int{2, 2, 2, 3, 4}).Draw(t, "kind")
				parts = append(parts, drawElement(t, kind, r, p.in[i]))
				numbersOnly = numbersOnly && (i >= 2 || kind == 2)
			}
			text[i] = strings.Join(parts, ",")
		}
	}
	p.in[4][0] = p.in[4][0] || p.in[4][7]
	p.domStar, p.dowStar = text[2][0] == '*', text[4][0] == '*'
	p.fixed = numbersOnly
	p.expr = strings.Join(text[:], " ")
	return p
}

// drawElement adds an element's numbers to the set in, and returns its text.
func drawElement(t *rapid.T, kind int, r [2]int, in map[int]bool) string {
	if kind == 0 && rapid.IntRange(0, 2).Draw(t, "stepped") == 0 {
		kind = 1
	}
	a := rapid.IntRange(r[0], r[1]).Draw(t, "a")
	b := rapid.IntRange(a, r[1]).Draw(t, "b")
	n := rapid.IntRange(1, 20).Draw(t, "n")
	low, high, step, text := r[0], r[1], 1, "*"
	switch kind {
	case 1:
		step, text = n, fmt.Sprintf("*/%d", n)
	case 2:
		low, high, text = a, a, fmt.Sprint(a)
	case 3:
		low, high, text = a, b, fmt.Sprintf("%d-%d", a, b)
	case 4:
		low, high, step, text = a, b, n, fmt.Sprintf("%d-%d/%d", a, b, n)
	}
	for i := low; i <= high; i += step {
		in[i] = true
	}
	return text
}

// means reports whether a clock that shows w, in UTC's clothes, is meant.
func (p plan) means(w time.Time) bool {
	dom, dow := p.in[2][w.Day()], p.in[4][int(w.Weekday())]
	day := dom || dow
	if p.domStar || p.dowStar {
		day = dom && dow
	}
	return day && p.in[0][w.Minute()] && p.in[1][w.Hour()] && p.in[3][int(w.Month())]
}

// ticks watches a clock of that zone from minute to minute, as a cron daemon
// does: a wildcard job fires when it is shown, a fixed one when it is reached.
func (p plan) ticks(loc *time.Location, from, to time.Time) []time.Time {
	var out []time.Time
	shown := func(at time.Time) time.Time {
		l := at.In(loc)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
	}
	from = from.Truncate(time.Minute)
	furthest := shown(from.Add(-time.Minute))
	for at := from.Add(-48 * time.Hour); at.Before(to); at = at.Add(time.Minute) {
		w := shown(at)
		fires := !p.fixed && p.means(w)
		if at.Equal(from.Add(-48 * time.Hour)) {
			furthest = w
		}
		for ; furthest.Before(w); furthest = furthest.Add(time.Minute) {
			fires = fires || p.fixed && p.means(furthest.Add(time.Minute))
		}
		if fires && !at.Before(from) {
			out = append(out, at)
		}
	}
	return out
}
