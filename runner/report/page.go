package report

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"github.com/oncectl/oncectl/runner"
)

//go:embed style.css
var style string

// glyphs are the shapes of the outcomes, drawn around 0,0.
//
//go:embed glyphs.svg
var glyphs string

// Write writes the page.
func (r *Report) Write(w io.Writer) error {
	order := r.sorted()
	p := &page{writer: writer{bufio.NewWriter(w)}, Report: r, verdict: r.verdict(order), order: order}
	p.head()
	p.top()
	p.now()
	p.charts()
	p.letterTable()
	p.doubtTable()
	p.lockTable()
	p.runTables()
	p.foot()
	return p.Flush()
}

// page is a report that is being written.
type page struct {
	writer
	*Report
	verdict verdict
	order   []*lock
}

// head has the policy by which a browser loads nothing and runs nothing, also
// where a hole in the escaping would let it: only the style of this page counts.
func (p *page) head() {
	sum := sha256.Sum256([]byte(style))
	icon := map[string]string{"good": "%231a7f37", "look": "%239a6700", "bad": "%23c1121f"}[p.verdict.tone]
	p.put(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>%s – oncectl report of %s</title>
<link rel="icon" href="data:image/svg+xml,%%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 2 2'%%3E%%3Ccircle cx='1' cy='1' r='1' fill='%s'/%%3E%%3C/svg%%3E">
<style>%s</style>
</head>
<body>
<a class="skip" href="#verdict">Skip to the verdict</a>
%s
`, markup(base64.StdEncoding.EncodeToString(sum[:])), p.verdict.headline, stamp(p.span.to), markup(icon), markup(style), markup(glyphs))
}

// top is what a person grasps within five seconds.
func (p *page) top() {
	p.put(`<header><p class="brand">oncectl report</p>
<p>%s to %s, of %s</p>
<nav aria-label="Sections"><a href="#now">Now</a> <a href="#timelines">Timelines</a> <a href="#letters">Dead letters</a> <a href="#doubt">In doubt</a> <a href="#locks">Figures</a> <a href="#bad">Not succeeded</a> <a href="#runs">Latest runs</a></nav>
</header>
<main>
<section id="verdict" class="verdict %s" tabindex="-1" aria-labelledby="headline">
<svg class="seal" viewBox="-14 -14 28 28" aria-hidden="true"><use href="#tone-%s"/></svg>
<div><h1 id="headline">%s</h1>
<p class="lead">%s</p>
`, p.span.from, p.span.to, p.Store, p.verdict.tone, p.verdict.tone, p.verdict.headline, p.verdict.lead)
	if len(p.Needs) > 0 {
		p.put("<ul class=\"needs\">\n")
		for _, n := range p.Needs {
			p.put("<li><strong>%s</strong><br>%s</li>\n", n.Message, n.Do)
		}
		p.put("</ul>\n")
	}
	if len(p.verdict.look) > 0 {
		p.put("<h2>Worth a look</h2>\n<ul class=\"look\">\n")
		for _, line := range p.verdict.look {
			p.put("<li>%s</li>\n", line)
		}
		p.put("</ul>\n")
	}
	p.put("</div></section>\n")
}

// now is what stands open, however long ago it began.
func (p *page) now() {
	s := &p.status
	var held []*runner.LockState
	for i := range s.Locks {
		if s.Locks[i].Held {
			held = append(held, &s.Locks[i])
		}
	}
	letters := 0
	for _, l := range s.Letters {
		letters += l.Count
	}
	p.section("now", "Now", 1, "")
	p.put("<dl class=\"tiles\">\n")
	p.tile("Runs in "+duration(p.span.since), p.all.runs, p.all.words())
	p.tile("Locks held", len(held), "")
	p.tile("Dead letters, unresolved", letters, "")
	doubt := ""
	if s.InDoubt > 0 {
		doubt = fmt.Sprintf("%d in all, %d of them expired", s.InDoubt, s.Expired)
	}
	p.tile("Events in doubt, open", s.InDoubtOpen, doubt)
	p.tile("Claims, unfinished", s.Unfinished, "")
	waiting := ""
	if s.Outbox.Count > 0 {
		waiting = fmt.Sprintf("the oldest for %s, since %s", duration(max(0, s.At.Sub(s.Outbox.Oldest))), stamp(s.Outbox.Oldest))
	}
	p.tile("Outbox, waiting", s.Outbox.Count, waiting)
	p.put("</dl>\n")
	p.heldTable(held)
	p.put("</section>\n")
}

func (p *page) tile(what string, n int, more string) {
	p.put("<div><dt>%s</dt> <dd><b>%d</b> <small>%s</small></dd></div>\n", what, n, more)
}

func (p *page) heldTable(held []*runner.LockState) {
	if len(held) == 0 {
		return
	}
	t := p.table("Locks held now", "", 0, "Lock", "Holder", "Since", "For")
	for i, l := range held {
		if i == MostRows {
			t.more(len(held)-i, "oncectl status")
			break
		}
		since := number("–")
		if !l.Since.IsZero() {
			since = number(duration(max(0, p.status.At.Sub(l.Since))))
		}
		t.row(name(l.Lock.Name), name(l.Holder), l.Since, since)
	}
	t.end()
}

func (p *page) foot() {
	p.put(`</main>
<footer>
<p>Written by oncectl %s from what the store showed at %s, by its own clock. Times are in UTC. A run that was skipped, since its lock was busy or its tick done, leaves no record and is not counted. Of dead letters neither payload nor request is shown, nor what a command wrote.</p>
<p>Whole lists: <code>oncectl runs --since %s --limit 0</code>, <code>oncectl failed list</code>, <code>oncectl claims --in-doubt</code>.</p>
</footer>
</body>
</html>
`, p.Version, p.status.At, flagAge(p.span.since))
}

// flagAge is a duration as --since takes it.
func flagAge(d time.Duration) string {
	if d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}
