package report

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// linear undoes the gamma of sRGB.
func linear(v float64) float64 {
	if v <= .04045 {
		return v / 12.92
	}
	return math.Pow((v+.055)/1.055, 2.4)
}

// Whatever the span, its parts are few, cover it, and each moment is in one.
func TestSpan_WhateverItsLength_HasFewPartsThatCoverIt(t *testing.T) {
	for _, since := range []time.Duration{
		1, time.Second, time.Minute, 59 * time.Second, time.Hour, 25 * time.Hour, 7 * day, 30 * day, 59 * day, 60 * day, 365 * day, 36500 * day, math.MaxInt64,
	} {
		s := newSpan(at, since)
		if s.bins < 1 || s.bins > mostBins || s.start.After(s.from) || s.begins(s.bins).Before(s.to) || s.step <= 0 {
			t.Errorf("%v: %d parts of %v from %v", since, s.bins, s.step, s.start)
		}
		if first, last := s.bin(s.from), s.bin(s.to); first != 0 || last != s.bins-1 {
			t.Errorf("%v: it begins in part %d and ends in %d of %d", since, first, last, s.bins)
		}
		if n := len(s.ticks()); n > 9 {
			t.Errorf("%v: %d ticks", since, n)
		}
	}
	if s := newSpan(at, 7*day); s.step != 3*time.Hour || s.bin(at.Add(time.Hour)) != s.bins-1 {
		t.Errorf("a week has parts of %v", s.step)
	}
}

var marks = regexp.MustCompile(`(?s)<svg role="listitem"([^>]*)><title>([^<]*)</title>(.*?)</svg>`)

// Each outcome has a mark with a shape of its own and a label in words; runs that
// meet in one part keep theirs.
func TestChart_WhenRunsEndInEveryWay_EachHasItsShapeAndLabel(t *testing.T) {
	var runs []runner.PastRun
	for i, o := range outcomes {
		runs = append(runs, ran(int64(90-i), "job", time.Duration(i)*day, o, time.Duration(i+1)*time.Minute))
	}
	runs = append(runs, ran(2, "meets", 6*day, runner.RunSucceeded, time.Second), ran(1, "meets", 6*day, runner.RunFailed, 3*time.Second))
	page := pageOf(t, reportOf(t, statusOf(runs...), runs...))
	found := marks.FindAllStringSubmatch(page, -1)
	if len(found) != len(outcomes)+1 {
		t.Fatalf("%d marks", len(found))
	}
	labels := ""
	for _, m := range found {
		labels += m[2] + "\n"
		if !strings.Contains(m[1], `tabindex="0"`) {
			t.Errorf("the mark %q is no stop of the tab key", m[2])
		}
	}
	for i, o := range outcomes {
		want := "2026-03-0" + string(rune('8'-i)) + "T06:00:00Z: run " + string([]rune{'9' - rune((i+9)/10), '0' + rune((10-i)%10)}) + " " + outcomeWord(string(o))
		if !strings.Contains(labels, want) {
			t.Errorf("no mark %q among\n%s", want, labels)
		}
		if shape := `href="#o` + string(rune('0'+i)) + `"`; i != succeeded && !strings.Contains(page, `<use class="o`+string(rune('0'+i))+`" `+shape) {
			t.Errorf("%s has no shape in the chart", o)
		}
	}
	meets := "2026-03-02T06:00:00Z to 2026-03-02T09:00:00Z: 2 runs: 1 succeeded, 1 failed; mean 2s, longest 3s"
	if !strings.Contains(labels, meets) || strings.Count(labels, "2 runs") != 1 {
		t.Errorf("no mark %q among\n%s", meets, labels)
	}
}

// Where there are many marks, the tab key stops at those that matter.
func TestChart_WhenThereAreManyMarks_TheTabKeyStopsWhereSomethingFailed(t *testing.T) {
	var runs []runner.PastRun
	id := int64(10000)
	for ago := time.Hour; ago < 7*day; ago += 3 * time.Hour {
		for _, lock := range []string{"a", "b", "c"} {
			outcome := runner.RunSucceeded
			if lock == "b" && ago == 61*time.Hour {
				outcome = runner.RunFailed
			}
			id--
			runs = append(runs, ran(id, lock, ago, outcome, time.Second))
		}
	}
	page := pageOf(t, reportOf(t, statusOf(runs...), runs...))
	if n := strings.Count(page, `role="listitem"`); n <= mostStops {
		t.Fatalf("only %d marks", n)
	}
	if n := strings.Count(page, `listitem" x=`); n != strings.Count(page, "<title>")-1 {
		t.Errorf("%d marks, but %d titles", n, strings.Count(page, "<title>"))
	}
	stops := 0
	for _, m := range marks.FindAllStringSubmatch(page, -1) {
		if strings.Contains(m[1], "tabindex") {
			stops++
			if !strings.Contains(m[2], "failed") {
				t.Errorf("%s is a stop", m[2])
			}
		}
	}
	if stops != 1 {
		t.Errorf("%d stops", stops)
	}
}

func TestDuration_HasAtMostTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Microsecond: "2ms", 1234 * time.Millisecond: "1.23s", 61 * time.Second: "1m1s", 60 * time.Second: "1m",
		59*time.Minute + 59*time.Second + 900*time.Millisecond: "1h", 26*time.Hour + 29*time.Minute: "26h29m", 7 * day: "7d", 50 * time.Hour: "2d2h",
		time.Minute - time.Millisecond: "1m", 48*time.Hour - time.Second: "2d",
	} {
		if got := duration(d); got != want {
			t.Errorf("%v: %s, not %s", time.Duration(d), got, want)
		}
	}
}
