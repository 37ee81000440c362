package cmd

import (
	"fmt"
	"strconv"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// need is something that needs a person. Its names are part of the JSON output.
type need struct {
	What    string `json:"what"` // dead_letters, in_doubt, unknown_run, overdue or outbox
	Lock    string `json:"lock,omitempty"`
	Message string `json:"message"`
	Do      string `json:"do"`
}

// needs lists what --check and --max-age ask for.
func (o *statusOptions) needs(s runner.Status) []need {
	var out []need
	if o.check {
		out = append(out, needsOfCounts(s)...)
		out = append(out, needsOfRuns(s)...)
		if age := backlogAge(s); o.maxAge > 0 && age > o.maxAge {
			out = append(out, need{What: "outbox",
				Message: fmt.Sprintf("outbox: the oldest of %d waiting rows is %v old", s.Outbox.Count, age.Round(time.Second)),
				Do:      "see that 'oncectl outbox publish' runs"})
		}
	}
	if o.maxAge > 0 {
		for _, name := range o.locks {
			if n, late := overdue(s, name, o.maxAge); late {
				out = append(out, n)
			}
		}
	}
	return out
}

func needsOfCounts(s runner.Status) []need {
	var out []need
	if n, oldest := countLetters(s); n > 0 {
		out = append(out, need{What: "dead_letters",
			Message: fmt.Sprintf("dead letters: %d unresolved, the oldest of %s", n, formatTime(oldest)),
			Do:      "look with 'oncectl failed list', then 'failed retry' or 'failed resolve'"})
	}
	if s.InDoubtOpen > 0 {
		out = append(out, need{What: "in_doubt",
			Message: fmt.Sprintf("in doubt: %s, %d of them expired", counted(s.InDoubtOpen, "event", "events"), s.Expired),
			Do:      "ask the receiver, then 'oncectl done' or 'release' for claims, 'failed retry' or 'failed resolve' for sends"})
	}
	return out
}

func needsOfRuns(s runner.Status) []need {
	var out []need
	for _, l := range s.Locks {
		if l.Last.Outcome == runner.RunUnknown {
			out = append(out, need{What: "unknown_run", Lock: l.Lock.Name,
				Message: fmt.Sprintf("lock %s: how run %d on %s of %s ended is unknown", strconv.Quote(l.Lock.Name), l.Last.ID, l.Last.Host, formatTime(l.Last.StartedAt)),
				Do:      "see what became of the job; its next run clears this"})
		}
	}
	return out
}

// overdue tells whether no run of the lock has succeeded for maxAge.
func overdue(s runner.Status, name string, maxAge time.Duration) (need, bool) {
	n := need{What: "overdue", Lock: name, Do: fmt.Sprintf("see 'oncectl runs --lock %s' and the job's crontab line", shellWord(name))}
	var last time.Time
	for _, l := range s.Locks {
		if l.Lock.Name == name && l.LastSuccess.After(last) {
			last = l.LastSuccess
		}
	}
	if last.IsZero() {
		n.Message = fmt.Sprintf("lock %s: no run has succeeded yet", strconv.Quote(name))
		return n, true
	}
	n.Message = fmt.Sprintf("lock %s: the last success was at %s, %v ago", strconv.Quote(name), formatTime(last), s.At.Sub(last).Round(time.Second))
	return n, s.At.Sub(last) > maxAge
}
