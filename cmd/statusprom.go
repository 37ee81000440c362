package cmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// metrics writes Prometheus' text format ("Exposition formats", version 0.0.4):
// all samples of a name together, behind its help and type.
type metrics struct{ w *bufio.Writer }

// gauge begins a name.
func (m metrics) gauge(name, help string) {
	fmt.Fprintf(m.w, "# HELP oncectl_%[1]s %[2]s\n# TYPE oncectl_%[1]s gauge\n", name, help)
}

// sample writes one value; labels are names and values in turn.
func (m metrics) sample(name string, value float64, labels ...string) {
	m.w.WriteString("oncectl_" + name)
	for i := 0; i < len(labels); i += 2 {
		m.w.WriteString([]string{"{", ","}[min(i, 1)])
		fmt.Fprintf(m.w, `%s="%s"`, labels[i], labelEscaper.Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		m.w.WriteByte('}')
	}
	m.w.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func printMetrics(w io.Writer, s runner.Status) error {
	m := metrics{bufio.NewWriter(w)}
	m.gauge("status_timestamp_seconds", "When this was read, by the store's clock.")
	m.sample("status_timestamp_seconds", seconds(s.At))
	m.locks(byName(s.Locks))
	m.gauge("dead_letters", "Unresolved dead letters.")
	for _, k := range []runner.Kind{runner.KindRun, runner.KindClaim, runner.KindSend, runner.KindOutbox} {
		for _, c := range []runner.Outcome{runner.Failed, runner.InDoubt} {
			m.sample("dead_letters", countOf(s, k, c), "kind", string(k), "certainty", string(c))
		}
	}
	for _, c := range []struct {
		name, help string
		value      float64
	}{
		{"events_in_doubt", "Events that may have had their side effect.", float64(s.InDoubt)},
		{"events_in_doubt_open", "Events in doubt that no person has resolved.", float64(s.InDoubtOpen)},
		{"claims_expired", "Claims whose time passed without an outcome.", float64(s.Expired)},
		{"sends_expired", "Sends whose sender ended without an outcome.", float64(s.ExpiredSends)},
		{"claims_unfinished", "Claims that wait for their outcome.", float64(s.Unfinished)},
		{"outbox_waiting", "Rows of the outbox that are neither sent nor given up.", float64(s.Outbox.Count)},
		{"outbox_oldest_age_seconds", "How long the oldest of them has waited.", backlogAge(s).Seconds()},
	} {
		m.gauge(c.name, c.help)
		m.sample(c.name, c.value)
	}
	return m.w.Flush()
}

// byName keeps one lock of each name, that of the latest run: a name may have
// had several keys (--lock-id), but a label's value may occur once only.
func byName(locks []runner.LockState) []runner.LockState {
	var out []runner.LockState
	for _, l := range locks { // in the order of names, then of runs
		if n := len(out); n > 0 && out[n-1].Lock.Name == l.Lock.Name {
			out[n-1] = l
			continue
		}
		out = append(out, l)
	}
	return out
}

func (m metrics) locks(locks []runner.LockState) {
	for _, g := range []struct {
		name, help string
		value      func(runner.LockState) (float64, bool)
	}{
		{"lock_held", "1 while somebody holds the lock.", func(l runner.LockState) (float64, bool) { return bit(l.Held), true }},
		{"lock_last_run_start_timestamp_seconds", "When the latest run began.",
			func(l runner.LockState) (float64, bool) { return seconds(l.Last.StartedAt), true }},
		{"lock_last_run_duration_seconds", "How long the latest run took, or has been going on.",
			func(l runner.LockState) (float64, bool) {
				return l.Last.Took.Seconds(), l.Last.Outcome != runner.RunUnknown
			}},
		{"lock_last_success_timestamp_seconds", "When the latest run that succeeded ended.",
			func(l runner.LockState) (float64, bool) { return seconds(l.LastSuccess), !l.LastSuccess.IsZero() }},
	} {
		m.gauge(g.name, g.help)
		for _, l := range locks {
			if v, ok := g.value(l); ok {
				m.sample(g.name, v, "lock", l.Lock.Name)
			}
		}
	}
	m.gauge("lock_last_run_outcome", "1 for what became of the latest run, 0 for all else.")
	for _, l := range locks {
		for _, outcome := range runOutcomes {
			m.sample("lock_last_run_outcome", bit(l.Last.Outcome == outcome), "lock", l.Lock.Name, "outcome", string(outcome))
		}
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func countOf(s runner.Status, k runner.Kind, c runner.Outcome) (n float64) {
	for _, l := range s.Letters {
		if l.Kind == k && l.Certainty == c {
			n += float64(l.Count)
		}
	}
	return n
}

// replaceFile writes a file beside path and renames it, so that a reader sees
// the old or the new one. Its name does not end as path's does, since a
// collector takes each *.prom. The mode is that of a file others may read. What
// is no file, /dev/stdout say, must not make way for one: it is written to.
func replaceFile(path string, print func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeTo(path, print)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.new")
	if err != nil {
		return writing(path, err)
	}
	defer os.Remove(f.Name()) // not there any more once it was renamed
	if err := print(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		return writing(path, err)
	}
	if err := f.Close(); err != nil {
		return writing(path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return writing(path, err)
	}
	return nil
}

// writeTo writes to what is there.
func writeTo(path string, print func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return writing(path, err)
	}
	if err := print(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return writing(path, err)
	}
	return nil
}

// writing names the file that a person knows, not the one beside it.
func writing(path string, err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("writing %s: %w", path, err)
}
