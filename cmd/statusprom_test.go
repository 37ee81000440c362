package cmd

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/oncectl/oncectl/runner"
)

// everything is a status with all that can be in one, under names that are hard
// to write.
func everything() runner.Status {
	at := time.Date(2026, 3, 1, 4, 0, 0, 250e6, time.UTC)
	lock := func(name string, outcome runner.RunOutcome) runner.LockState {
		return runner.LockState{Lock: runner.LockID{Name: name}, Last: runner.PastRun{StartedAt: at.Add(-time.Minute), Took: 1500 * time.Millisecond, Outcome: outcome}}
	}
	s := runner.Status{
		At: at, InDoubt: 4, InDoubtOpen: 3, Expired: 2, ExpiredSends: 1, Unfinished: 5,
		Outbox:  runner.Backlog{Count: 7, Oldest: at.Add(-90 * time.Second)},
		Letters: []runner.LetterCount{{Kind: runner.KindSend, Certainty: runner.InDoubt, Count: 10000, Oldest: at}},
		Locks: []runner.LockState{lock("a", runner.RunUnknown), lock(`back\slash "quoted" {é} 😀`, runner.RunSucceeded),
			lock("twice", runner.RunFailed), lock("twice", runner.RunRunning)},
	}
	s.Locks[1].LastSuccess = at.Add(-time.Second)
	s.Locks[3].Held = true
	return s
}

// parse reads the text by Prometheus' own parser.
func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the parser refuses it: %v\n%s", err, text)
	}
	return families
}

// value is that of the sample with these labels; NaN if there is none.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	for _, m := range families[name].GetMetric() {
		same := len(m.GetLabel()) == len(labels)/2
		for i := 0; same && i < len(labels); i += 2 {
			l := m.GetLabel()[i/2]
			same = l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if same {
			return m.GetGauge().GetValue()
		}
	}
	return math.NaN()
}

func TestMetrics_WhenParsed_AreWhatTheStatusIs(t *testing.T) {
	var b bytes.Buffer
	if err := printMetrics(&b, everything()); err != nil {
		t.Fatal(err)
	}
	got := parse(t, b.String())
	odd := everything().Locks[1].Lock.Name
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{0, "oncectl_lock_held", []string{"lock", odd}},
		{1, "oncectl_lock_held", []string{"lock", "twice"}},
		{1, "oncectl_lock_last_run_outcome", []string{"lock", odd, "outcome", "succeeded"}},
		{0, "oncectl_lock_last_run_outcome", []string{"lock", odd, "outcome", "failed"}},
		{1, "oncectl_lock_last_run_outcome", []string{"lock", "a", "outcome", "unknown"}},
		{1.5, "oncectl_lock_last_run_duration_seconds", []string{"lock", odd}},
		{1772337599.25, "oncectl_lock_last_success_timestamp_seconds", []string{"lock", odd}},
		{1772337540.25, "oncectl_lock_last_run_start_timestamp_seconds", []string{"lock", "a"}},
		{1772337600.25, "oncectl_status_timestamp_seconds", nil},
		{10000, "oncectl_dead_letters", []string{"kind", "send", "certainty", "in_doubt"}},
		{0, "oncectl_dead_letters", []string{"kind", "run", "certainty", "failed"}},
		{4, "oncectl_events_in_doubt", nil}, {3, "oncectl_events_in_doubt_open", nil},
		{2, "oncectl_claims_expired", nil}, {1, "oncectl_sends_expired", nil}, {5, "oncectl_claims_unfinished", nil},
		{7, "oncectl_outbox_waiting", nil}, {90, "oncectl_outbox_oldest_age_seconds", nil},
	} {
		if v := value(got, c.name, c.labels...); v != c.want {
			t.Errorf("%s%q is %v, want %v", c.name, c.labels, v, c.want)
		}
	}
	if v := value(got, "oncectl_lock_last_success_timestamp_seconds", "lock", "a"); !math.IsNaN(v) {
		t.Errorf("a lock without a success has one at %v", v)
	}
	seen := map[string]bool{} // the parser takes a sample twice, Prometheus does not
	for _, line := range strings.Split(b.String(), "\n") {
		key := line[:strings.LastIndexByte(" "+line, ' ')]
		if line != "" && line[0] != '#' && seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = true
	}
}

func TestMetrics_WhenTheStoreIsNew_ArePlainZeroes(t *testing.T) {
	var b bytes.Buffer
	if err := printMetrics(&b, runner.Status{At: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	if v := value(parse(t, b.String()), "oncectl_outbox_oldest_age_seconds"); v != 0 {
		t.Errorf("the age of an empty outbox is %v", v)
	}
}

// A reader never sees half a file, and a failure leaves the old one.
func TestReplaceFile_WhenTheStatusFails_KeepsTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.prom")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	o := statusOptions{file: path}
	err = o.write(func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return errNo })
	if !errors.Is(err, errNo) {
		t.Errorf("write() = %v", err)
	}
	wantFile(t, path, "old")
	if err := o.write(func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "new")
	if b, _ := io.ReadAll(old); string(b) != "old" {
		t.Errorf("who had the old file open reads %q: it was not replaced by a rename", b)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files are left over: %v", left)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("the file's mode is %v, %v", st.Mode(), err)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s has %q, %v, want %q", path, b, err, want)
	}
}
