package report

import (
	"strings"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// outcomes are all that a run's outcome can be, in the order of the columns.
var outcomes = [...]runner.RunOutcome{
	runner.RunSucceeded, runner.RunFailed, runner.RunTimedOut, runner.RunStopped, runner.RunLost, runner.RunRunning, runner.RunUnknown,
}

// worst are the places in outcomes of those that are no success, worst first.
var worst = [...]int{6, 4, 1, 2, 3, 5}

const succeeded = 0 // the place of RunSucceeded

func placeOf(o runner.RunOutcome) int {
	for i, known := range outcomes {
		if known == o {
			return i
		}
	}
	return len(outcomes) - 1 // a newer oncectl's: unknown to this one
}

// isBad tells an outcome that somebody may want to look at.
func isBad(o runner.RunOutcome) bool { return o != runner.RunSucceeded && o != runner.RunRunning }

// word is how people call the outcome at that place.
func word(place int) string { return outcomeWord(string(outcomes[place])) }

func outcomeWord(outcome string) string { return strings.ReplaceAll(outcome, "_", " ") }

// figures sum up runs.
type figures struct {
	runs           int
	by             [len(outcomes)]int
	ended          int // those whose end is recorded
	total, longest time.Duration
}

func (f *figures) add(r *runner.PastRun) {
	f.runs++
	f.by[placeOf(r.Outcome)]++
	if r.Finished() {
		f.ended++
		f.total += r.Took
		f.longest = max(f.longest, r.Took)
	}
}

func (f *figures) mean() time.Duration {
	if f.ended == 0 {
		return 0
	}
	return f.total / time.Duration(f.ended)
}

// bad counts the runs that ended otherwise than well.
func (f *figures) bad() (n int) {
	for i, o := range outcomes {
		if isBad(o) {
			n += f.by[i]
		}
	}
	return n
}

// words is "7 succeeded, 1 failed".
func (f *figures) words() string {
	var out []string
	for i, n := range f.by {
		if n > 0 {
			out = append(out, counted(n, word(i), word(i)))
		}
	}
	return strings.Join(out, ", ")
}
