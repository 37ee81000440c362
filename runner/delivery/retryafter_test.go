package delivery

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseRetryAfter_ForEachForm_TellsTheWait(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration, layout string) string { return now.Add(d).Format(layout) }
	const asctime, imf, rfc850 = time.ANSIC, http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT"
	for value, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, " 7 ": 7 * time.Second, "007": 7 * time.Second, "+2": 2 * time.Second,
		"1.5": 2 * time.Second, "0.001": time.Second, ".2": time.Second, "1.": time.Second, "2.0": 2 * time.Second,
		"1e9": 1e9 * time.Second, "1e-3": time.Second, "1e99": retryAfterLimit, "1e999": retryAfterLimit,
		"99999999999999999999": retryAfterLimit, "9223372036854775807": retryAfterLimit,

		in(90*time.Second, imf): 90 * time.Second, in(90*time.Second, rfc850): 90 * time.Second,
		in(90*time.Second, asctime): 90 * time.Second,
		in(-time.Hour, imf):         0, in(-time.Hour, rfc850): 0, in(-time.Hour, asctime): 0,
		"Thu, 01 Jan 1970 00:00:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": retryAfterLimit,
		// Two digits for the year: 1970 would be more than 50 years ago.
		"Saturday, 01-Mar-70 12:00:00 GMT": time.Date(2070, 3, 1, 12, 0, 0, 0, time.UTC).Sub(now),

		"": noRetryAfter, " ": noRetryAfter, "-1": noRetryAfter, "-0": noRetryAfter, "abc": noRetryAfter,
		"1s": noRetryAfter, "1,5": noRetryAfter, "0x10": noRetryAfter, "1_000": noRetryAfter, "inf": noRetryAfter,
		"NaN": noRetryAfter, "1 2": noRetryAfter, "+-1": noRetryAfter, "e": noRetryAfter, ".": noRetryAfter,
		"2026-03-01T12:00:00Z": noRetryAfter,
	} {
		if got := parseRetryAfter(value, now); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}

func TestRetryAfter_WhenTheReceiversClockIsOff_CountsFromItsDate(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	theirs := now.Add(-3 * time.Minute)
	h := http.Header{
		"Date":        {theirs.Format(http.TimeFormat)},
		"Retry-After": {theirs.Add(10 * time.Second).Format(http.TimeFormat)},
	}
	if got := retryAfter(h, now); got != 10*time.Second {
		t.Errorf("got %v, want 10s", got)
	}
}

func TestRetryAfter_WhenSaidTwice_TakesTheLonger(t *testing.T) {
	h := http.Header{"Retry-After": {"2", "abc", "5", "3"}}
	if got := retryAfter(h, time.Now()); got != 5*time.Second {
		t.Errorf("got %v, want 5s", got)
	}
	if got := retryAfter(http.Header{}, time.Now()); got != noRetryAfter {
		t.Errorf("without the header: got %v", got)
	}
}

// No value, whatever it is, makes a sender wait for less than nothing or for
// ever; a number means itself, rounded up, and a date the time until it.
func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "-1", "1.5", "1e9", "", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "+5", "1e-400", "1e999", "0x10", "Infinity", "NaN", "1_0", "00", ".", "-0"} {
		f.Add(s, int64(5000))
	}
	f.Add("9223372036854775807", int64(-1))
	f.Add("9223372036", int64(45*365*24*60*60)) // in 2071
	f.Add("9223372037", int64(1<<62))
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string, n int64) {
		got := parseRetryAfter(s, now)
		if got != noRetryAfter && (got < 0 || got > retryAfterLimit || got%time.Second != 0 && got != retryAfterLimit) {
			t.Errorf("%q: got %v", s, got)
		}
		// More than 50 years off, two digits for the year mean another century.
		seconds := n % int64((49 * 365 * 24 * time.Hour).Seconds())
		want := max(0, time.Duration(seconds)*time.Second)
		for _, form := range []string{http.TimeFormat, time.RFC850, time.ANSIC} {
			date := now.Add(time.Duration(seconds) * time.Second).Format(form)
			if form == time.RFC850 {
				date = strings.Replace(date, "UTC", "GMT", 1)
			}
			if got := parseRetryAfter(date, now); got != want {
				t.Errorf("%s is in %v, not in %v", date, got, want)
			}
		}
		if got := parseRetryAfter(strconv.FormatInt(seconds, 10), now); seconds < 0 && got != noRetryAfter || seconds >= 0 && got != want {
			t.Errorf("%d means %v", seconds, got)
		}
	})
}
