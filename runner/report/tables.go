package report

import (
	"fmt"
	"strconv"

	"github.com/oncectl/oncectl/runner"
)

// table is one that is being written. It scrolls by itself where it is too wide
// for the window, also by the keyboard.
type table struct {
	p *page
	// title is the column that says what a row is about.
	title, columns int
}

// table begins a table. note says what is not in it.
func (p *page) table(caption, note string, title int, columns ...string) table {
	p.put("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"%s\"><table>\n<caption>%s <small>%s</small></caption>\n<thead><tr>", caption, caption, note)
	for _, c := range columns {
		p.put("<th scope=\"col\">%s</th>", c)
	}
	p.put("</tr></thead>\n<tbody>\n")
	return table{p, title, len(columns)}
}

// row writes a row. Numbers stand to the right.
func (t table) row(cells ...any) {
	t.p.put("<tr>")
	for i, cell := range cells {
		format := "<td>%s</td>"
		switch cell.(type) {
		case int, int64, number:
			format = "<td class=\"r\">%v</td>"
		}
		if i == t.title {
			format = "<th scope=\"row\">%s</th>"
		}
		t.p.put(format, cell)
	}
	t.p.put("</tr>\n")
}

// number is a text that stands to the right, such as a duration.
type number string

// more is a last row that says how many there are beside those shown.
func (t table) more(n int, command string) {
	t.p.put("<tr><td colspan=\"%d\">and %d more: <code>%s</code></td></tr>\n", t.columns, n, command)
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

// section begins a section with its heading; without rows it says none and ends.
func (p *page) section(id, heading string, rows int, none string) bool {
	p.put("<section id=\"%s\" aria-labelledby=\"%s-h\"><h2 id=\"%s-h\">%s</h2>\n", id, id, id, heading)
	if rows == 0 {
		p.put("<p class=\"none\">%s</p></section>\n", none)
	}
	return rows > 0
}

// lockTable has the figures behind the charts, and those of all other locks.
func (p *page) lockTable() {
	if !p.section("locks", "Figures of each lock", len(p.order), "No lock has been used yet.") {
		return
	}
	columns := []string{"Lock", "Runs"}
	for i := range outcomes {
		columns = append(columns, word(i))
	}
	t := p.table("Runs that began in "+duration(p.span.since)+", by lock", "durations of those whose end is recorded",
		0, append(columns, "Mean", "Longest", "Latest run", "Last success")...)
	for _, l := range p.order {
		t.figures(name(l.name), &l.all, l.last.StartedAt, l.lastSuccess)
	}
	if p.rest.runs > 0 {
		t.figures("<i>all other locks</i>", &p.rest, "–", "–")
	}
	p.put("</tbody>\n<tfoot>")
	t.figures("All", &p.all, "", "")
	p.put("</tfoot></table></div></section>\n")
}

func (t table) figures(title markup, f *figures, more ...any) {
	cells := []any{title, f.runs}
	for i, n := range f.by {
		cells = append(cells, shade(i, n))
	}
	mean, longest := number("–"), number("–")
	if f.ended > 0 {
		mean, longest = number(duration(f.mean())), number(duration(f.longest))
	}
	t.row(append(append(cells, mean, longest), more...)...)
}

// shade is a count that is easy to overlook if it is zero, and hard if it is of
// something bad.
func shade(place, n int) any {
	class := "zero"
	if n > 0 {
		if !isBad(outcomes[place]) {
			return n
		}
		class = "some o" + strconv.Itoa(place)
	}
	return markup(fmt.Sprintf(`<span class="%s">%d</span>`, class, n))
}

// runTables list the latest runs that did not succeed, and the latest of all.
func (p *page) runTables() {
	p.runTable("bad", "Runs that did not succeed", "None.", p.bad, p.all.bad())
	p.runTable("runs", "Latest runs", "No run began in this time.", p.latest, p.all.runs)
}

func (p *page) runTable(id, heading, none string, runs []*runner.PastRun, all int) {
	if !p.section(id, heading, len(runs), none) {
		return
	}
	t := p.table(heading, shown(len(runs), all), 1, "Run", "Lock", "Started", "Took", "Outcome", "Exit", "Host and pid", "Key")
	for _, r := range runs {
		took, exit := number("–"), number("–")
		if r.Outcome != runner.RunUnknown {
			took = number(duration(r.Took))
		}
		if r.Finished() {
			exit = number(strconv.Itoa(r.ExitCode))
		}
		t.row(r.ID, name(r.Lock.Name), r.StartedAt, took, glyph(placeOf(r.Outcome)), exit, name(r.Host+"/"+strconv.Itoa(r.PID)), name(r.Key))
	}
	t.end()
	p.put("</section>\n")
}

func (p *page) letterTable() {
	if !p.section("letters", "Dead letters", p.letters.count, "None is unresolved.") {
		return
	}
	rows := p.letters.latestFirst()
	t := p.table("Unresolved dead letters", shown(len(rows), p.letters.count)+", however old",
		3, "Id", "Failed", "Kind", "Name", "Certainty", "Tries", "Event", "Error")
	for _, d := range rows {
		t.row(d.ID, d.FailedAt, d.Kind, name(d.Name), outcomeWord(string(d.Certainty)), d.Attempts, name(string(d.EventID)), "<div class=\"wide\">"+name(d.LastError)+"</div>")
	}
	t.end()
	p.put("</section>\n")
}

func (p *page) doubtTable() {
	if !p.section("doubt", "Events in doubt", p.doubts.count, "None.") {
		return
	}
	rows := p.doubts.latestFirst()
	t := p.table("Events that may have had their side effect", shown(len(rows), p.doubts.count)+"; those whose dead letter is resolved are among them",
		0, "Event", "Why", "Claimed", "In doubt since", "Run", "Owner", "Sent to")
	for _, c := range rows {
		why, since, run := "its sender could not tell", c.FinishedAt, number("–")
		if c.Outcome == "" {
			why, since = "it expired without an outcome", c.ExpiresAt
		}
		if c.RunID != 0 {
			run = number(strconv.FormatInt(c.RunID, 10))
		}
		t.row(name(string(c.ID)), why, c.ClaimedAt, since, run, name(c.Owner), name(c.Target))
	}
	t.end()
	p.put("</section>\n")
}
