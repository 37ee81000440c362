package report

import (
	"fmt"
	"slices"
	"strconv"
)

// The heights of a chart's parts, in pixels: a row for what succeeded, one above
// it for each outcome else that meets in one bin, and below it the durations.
const (
	slotHeight = 18
	gap        = 6
	tookHeight = 30
)

// mostStops is how many marks may be stops of the tab key. Where there are more,
// only those are that show something else than success.
const mostStops = 150

// charts draws the locks with the most to say.
func (p *page) charts() {
	var drawn []*lock
	with, marks := 0, 0
	for _, l := range p.order {
		if l.all.runs == 0 {
			continue
		}
		if with++; with <= MostCharts {
			drawn = append(drawn, l)
			marks += len(l.bins)
		}
	}
	if !p.section("timelines", "Timelines", with, "No run began in this time.") {
		return
	}
	p.legend()
	p.axis()
	for i, l := range drawn {
		p.chart(i, l, marks <= mostStops)
	}
	if with > len(drawn) {
		p.put("<p>%d more locks have only their figures below: they have less to show.</p>\n", with-len(drawn))
	}
	p.put("</section>\n")
}

func (p *page) legend() {
	p.put("<ul class=\"legend\" aria-label=\"Marks\">\n")
	for i := range outcomes {
		p.put("<li>%s</li>\n", glyph(i))
	}
	p.put("<li><span class=\"o\"><svg class=\"g\" viewBox=\"-8 -8 16 16\" aria-hidden=\"true\"><use href=\"#took\"/></svg>longest and mean duration</span></li>\n</ul>\n")
	p.put("<p class=\"hint\">Each mark is the runs that began within %s, in UTC; <a href=\"#locks\">a table</a> has the figures.</p>\n", duration(p.span.step))
}

func (p *page) axis() {
	p.put("<div class=\"lock axis\" aria-hidden=\"true\"><div></div><svg class=\"chart\" width=\"100%%\" height=\"20\">")
	for _, t := range p.span.ticks() {
		p.put(`<line class="tick" x1="%.2f%%" x2="%.2f%%" y1="0" y2="20"/><text class="%s" x="%.2f%%" dx="4" y="14">%s</text>`, t.at, t.at, t.class, t.at, t.label)
	}
	p.put("</svg></div>\n")
}

// chart is a lock's row: its name and latest run, and its runs as marks.
func (p *page) chart(i int, l *lock, allStops bool) {
	p.put("<article class=\"lock\" aria-labelledby=\"l%d\"><div class=\"who\"><h3 id=\"l%d\">%s</h3>\n", i, i, name(l.name))
	p.put("<p>%s %s%s</p>\n", glyph(placeOf(l.last.Outcome)), l.last.StartedAt, p.ending(l))
	p.put("<p>%s: %s", counted(l.all.runs, "run", "runs"), l.all.words())
	if l.all.ended > 1 {
		p.put("; mean %s, longest %s", duration(l.all.mean()), duration(l.all.longest))
	}
	p.put("</p></div>\n")
	slots := l.slots()
	base := slots * slotHeight
	height := base + slotHeight + gap + tookHeight
	p.put("<svg class=\"chart\" role=\"list\" aria-label=\"Timeline of %s\" width=\"100%%\" height=\"%d\"><desc>%s, from %s to %s. Each mark sums up the runs that began in its %s; below it are their durations, up to %s.</desc>\n",
		isolated(cut(l.name, 80)), height, counted(l.all.runs, "run", "runs"), stamp(p.span.from), stamp(p.span.to), duration(p.span.step), duration(l.all.longest))
	for _, t := range p.span.ticks() {
		p.put(`<line class="tick" x1="%.2f%%" x2="%.2f%%" y1="0" y2="%d"/>`, t.at, t.at, height)
	}
	p.put("<line class=\"base\" x1=\"0\" x2=\"100%%\" y1=\"%d\" y2=\"%d\"/>\n", height, height)
	slices.SortFunc(l.bins, func(a, b *bin) int { return a.at - b.at })
	for _, b := range l.bins {
		p.mark(b, l, base, height, allStops || b.by[succeeded] < b.runs)
	}
	p.put("</svg></article>\n")
}

// ending says how the latest run of a lock ended.
func (p *page) ending(l *lock) string {
	switch {
	case !l.last.Finished():
		return ""
	case l.last.ExitCode != 0:
		return fmt.Sprintf(", exit %d after %s", l.last.ExitCode, duration(l.last.Took))
	}
	return ", took " + duration(l.last.Took)
}

// slots is how many outcomes other than success meet in one bin at most.
func (l *lock) slots() (most int) {
	for _, b := range l.bins {
		n := 0
		for _, place := range worst {
			if b.by[place] > 0 {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// mark draws a bin. Outcomes other than success are stacked above the row of
// successes, the worst on top, so that place and shape tell them apart.
func (p *page) mark(b *bin, l *lock, base, height int, stop bool) {
	p.put(`<svg role="listitem" x="%.2f%%" width="%.2f%%" height="%d"`, 100*float64(b.at)/float64(p.span.bins), 100/float64(p.span.bins), height)
	if stop {
		p.put(` tabindex="0"`)
	}
	when, what := p.describe(b)
	p.put(`><title>%s: %s</title><rect class="hit" width="100%%" height="%d"/>`, when, what, height)
	if b.by[succeeded] > 0 {
		p.put(`<rect class="s" x="12%%" width="76%%" y="%d" height="%d" rx="1"/>`, base+3, slotHeight-4)
	}
	y := base - slotHeight/2
	for i := len(worst) - 1; i >= 0; i-- {
		if place := worst[i]; b.by[place] > 0 {
			p.put(`<use class="o%d" href="#o%d" x="50%%" y="%d"/>`, place, place, y)
			y -= slotHeight
		}
	}
	if b.ended > 0 {
		p.bar("d", b.longest.Seconds()/l.all.longest.Seconds(), height)
		p.bar("m", b.mean().Seconds()/l.all.longest.Seconds(), height)
	}
	if stop {
		p.tip(b, when, what)
	}
	p.put("</svg>\n")
}

// bar is a duration, as a part of the longest.
func (p *page) bar(class string, part float64, height int) {
	h := 1.0
	if part > 0 { // not of 0/0
		h = max(1, part*tookHeight)
	}
	p.put(`<rect class="%s" x="12%%" width="76%%" y="%.1f" height="%.1f"/>`, class, float64(height)-h, h)
}

// tip shows a mark's label beside it while it has the focus: a title is shown to
// the mouse only.
func (p *page) tip(b *bin, when, what string) {
	anchor := "start"
	if b.at > p.span.bins/2 {
		anchor = "end"
	}
	p.put(`<text class="tip" aria-hidden="true" text-anchor="%s"><tspan x="50%%" y="-20">%s</tspan><tspan x="50%%" y="-5">%s</tspan></text>`, anchor, when, what)
}

// describe is a mark's label, in two lines: the run itself where there is one.
func (p *page) describe(b *bin) (when, what string) {
	if b.runs == 1 {
		r := b.first
		what = "run " + strconv.FormatInt(r.ID, 10) + " " + word(placeOf(r.Outcome))
		if r.Finished() {
			what += fmt.Sprintf(", exit %d, took %s", r.ExitCode, duration(r.Took))
		}
		return stamp(r.StartedAt), what
	}
	what = fmt.Sprintf("%d runs: %s", b.runs, b.words())
	if b.ended > 0 {
		what += fmt.Sprintf("; mean %s, longest %s", duration(b.mean()), duration(b.longest))
	}
	return stamp(p.span.begins(b.at)) + " to " + stamp(p.span.begins(b.at+1)), what
}
