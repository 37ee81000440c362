package report

import (
	"fmt"
	"strconv"

	"github.com/oncectl/oncectl/runner"
)

// table is one that is being written. It scrolls by itself where it is too wide
// for the window, also by the keyboard.
type table struct {
	p       *page
	columns int
}

// table begins a table. note says what is not in it.
func (p *page) table(caption, note string, columns ...string) table {
	p.put("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"%s\"><table>\n<caption>%s", caption, caption)
	if note != "" {
		p.put(" <small>%s</small>", note)
	}
	p.put("</caption>\n<thead><tr>")
	for _, c := range columns {
		p.put("<th scope=\"col\">%s</th>", c)
	}
	p.put("</tr></thead>\n<tbody>\n")
	return table{p, len(columns)}
}

// more is a last row that says how many there are beside those shown.
func (t table) more(n int, command string) {
	t.p.put("<tr class=\"more\"><td colspan=\"%d\">and %d more: <code>%s</code></td></tr>\n", t.columns, n, command)
}

func (t table) end() { t.p.put("</tbody></table></div>\n") }

// shown says how many of all are in a table.
func shown(n, all int) string {
	if n == all {
		return fmt.Sprintf("all %d", all)
	}
	return fmt.Sprintf("the latest %d of %d", n, all)
}

// glyph is an outcome's shape, with its name: never the colour alone.
func glyph(place int) markup {
	return markup(fmt.Sprintf(`<span class="o o%d"><svg class="g" viewBox="-8 -8 16 16" aria-hidden="true"><use href="#o%d"/></svg>%s</span>`, place, place, word(place)))
}

// lockTable has the figures behind the charts, and those of all other locks.
func (p *page) lockTable() {
	p.put("<section id=\"locks\" aria-labelledby=\"locks-h\"><h2 id=\"locks-h\">Figures of each lock</h2>\n")
	if len(p.order) == 0 {
		p.put("<p class=\"none\">No lock has been used yet.</p></section>\n")
		return
	}
	columns := []string{"Lock", "Runs"}
	for i := range outcomes {
		columns = append(columns, word(i))
	}
	p.table("Runs that began in "+duration(p.span.since)+", by lock", "durations of those whose end is recorded",
		append(columns, "Mean", "Longest", "Latest run", "Last success")...)
	for _, l := range p.order {
		p.figureCells(name(l.name), l.all)
		p.put("<td>%s</td><td>%s</td></tr>\n", l.last.StartedAt, l.lastSuccess)
	}
	if p.rest.runs > 0 {
		p.figureCells("<i>all other locks</i>", p.rest)
		p.put("<td>–</td><td>–</td></tr>\n")
	}
	p.put("</tbody>\n<tfoot>")
	p.figureCells("All", p.all)
	p.put("<td></td><td></td></tr></tfoot></table></div></section>\n")
}

// figureCells begins a row.
func (p *page) figureCells(title markup, f figures) {
	p.put("<tr><th scope=\"row\">%s</th><td class=\"r\">%d</td>", title, f.runs)
	for i, n := range f.by {
		class := "r"
		if n == 0 {
			class = "r zero"
		} else if isBad(outcomes[i]) {
			class = "r o" + strconv.Itoa(i)
		}
		p.put("<td class=\"%s\">%d</td>", class, n)
	}
	if f.ended == 0 {
		p.put("<td class=\"r\">–</td><td class=\"r\">–</td>")
		return
	}
	p.put("<td class=\"r\">%s</td><td class=\"r\">%s</td>", duration(f.mean()), duration(f.longest))
}

// runTables list the latest runs that did not succeed, and the latest of all.
func (p *page) runTables() {
	p.put("<section id=\"bad\" aria-labelledby=\"bad-h\"><h2 id=\"bad-h\">Runs that did not succeed</h2>\n")
	p.runTable("Runs that did not succeed", "Every run that has ended succeeded.", p.bad, p.all.bad())
	p.put("</section>\n<section id=\"runs\" aria-labelledby=\"runs-h\"><h2 id=\"runs-h\">Latest runs</h2>\n")
	p.runTable("Latest runs", "No run began in this time.", p.latest, p.all.runs)
	p.put("</section>\n")
}

func (p *page) runTable(caption, none string, runs []runner.PastRun, all int) {
	if len(runs) == 0 {
		p.put("<p class=\"none\">%s</p>\n", none)
		return
	}
	t := p.table(caption, shown(len(runs), all), "Run", "Lock", "Started", "Took", "Outcome", "Exit", "Host and pid", "Key")
	for _, r := range runs {
		took, exit := "–", "–"
		if r.Outcome != runner.RunUnknown {
			took = duration(r.Took)
		}
		if r.Finished() {
			exit = strconv.Itoa(r.ExitCode)
		}
		p.put("<tr><td class=\"r\">%d</td><th scope=\"row\">%s</th><td>%s</td><td class=\"r\">%s</td><td>%s</td><td class=\"r\">%s</td><td>%s</td><td>%s</td></tr>\n",
			r.ID, name(r.Lock.Name), r.StartedAt, took, glyph(placeOf(r.Outcome)), exit, name(r.Host+"/"+strconv.Itoa(r.PID)), name(r.Key))
	}
	t.end()
}

func (p *page) letterTable() {
	p.put("<section id=\"letters\" aria-labelledby=\"letters-h\"><h2 id=\"letters-h\">Dead letters</h2>\n")
	if p.letters.count == 0 {
		p.put("<p class=\"none\">None is unresolved.</p></section>\n")
		return
	}
	rows := p.letters.latestFirst()
	t := p.table("Unresolved dead letters", shown(len(rows), p.letters.count)+", however old", "Id", "Failed", "Kind", "Name", "Certainty", "Tries", "Event", "Error")
	for _, d := range rows {
		p.put("<tr><td class=\"r\">%d</td><td>%s</td><td>%s</td><th scope=\"row\">%s</th><td>%s</td><td class=\"r\">%d</td><td>%s</td><td class=\"wide\">%s</td></tr>\n",
			d.ID, d.FailedAt, string(d.Kind), name(d.Name), certainty(d.Certainty), d.Attempts, name(string(d.EventID)), name(d.LastError))
	}
	t.end()
	p.put("</section>\n")
}

func certainty(o runner.Outcome) string {
	if o == runner.InDoubt {
		return "in doubt"
	}
	return string(o)
}

func (p *page) doubtTable() {
	p.put("<section id=\"doubt\" aria-labelledby=\"doubt-h\"><h2 id=\"doubt-h\">Events in doubt</h2>\n")
	if p.doubts.count == 0 {
		p.put("<p class=\"none\">None.</p></section>\n")
		return
	}
	rows := p.doubts.latestFirst()
	t := p.table("Events that may have had their side effect", shown(len(rows), p.doubts.count)+"; those whose dead letter is resolved are among them",
		"Event", "Why", "Claimed", "Expired", "Run", "Owner", "Sent to")
	for _, c := range rows {
		why, expired := "its sender could not tell", stamp(c.FinishedAt)
		if c.Outcome == "" {
			why, expired = "it expired without an outcome", stamp(c.ExpiresAt)
		}
		run := "–"
		if c.RunID != 0 {
			run = strconv.FormatInt(c.RunID, 10)
		}
		p.put("<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td><td class=\"r\">%s</td><td>%s</td><td>%s</td></tr>\n",
			name(string(c.ID)), why, c.ClaimedAt, expired, run, name(c.Owner), name(c.Target))
	}
	t.end()
	p.put("</section>\n")
}
