package schedule

import (
	"slices"
	"testing"
	"time"
)

// night lists the ticks in a stretch of time, by Next; Tick is held against
// Next by the property tests.
func night(s *Schedule, from, to time.Time) []string {
	var out []string
	for t, ok := s.Next(from.Add(-time.Second)); ok && t.At().Before(to); t, ok = s.Next(t.At()) {
		out = append(out, t.At().In(s.zone.loc).Format("02T15:04:05-07:00"))
	}
	return out
}

func TestTicks_WhenClocksChange_AreThoseOfDebiansCron(t *testing.T) {
	for _, c := range []struct {
		name, zone, expr, from, to string
		want                       []string
	}{
		{"forward, fixed in the gap", "Europe/Berlin", "30 2 * * *", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z",
			[]string{"28T02:30:00+01:00", "29T03:00:00+02:00", "30T02:30:00+02:00"}},
		{"forward, fixed lists in the gap fire once", "Europe/Berlin", "0,30 2,3 * * *", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z",
			[]string{"29T03:00:00+02:00", "29T03:30:00+02:00"}},
		{"forward, steps", "Europe/Berlin", "*/30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-30T12:00:00Z",
			[]string{"30T02:00:00+02:00", "30T02:30:00+02:00"}},
		{"forward, range of hours", "Europe/Berlin", "30 1-3 * * *", "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z",
			[]string{"29T01:30:00+01:00", "29T03:30:00+02:00"}},
		{"forward, hourly", "Europe/Berlin", "@hourly", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z",
			[]string{"29T01:00:00+01:00", "29T03:00:00+02:00", "29T04:00:00+02:00"}},
		{"back, fixed", "Europe/Berlin", "30 2 * * *", "2026-10-24T22:00:00Z", "2026-10-26T22:00:00Z",
			[]string{"25T02:30:00+02:00", "26T02:30:00+01:00"}},
		{"back, fixed list", "Europe/Berlin", "15,45 2,3 * * *", "2026-10-24T22:00:00Z", "2026-10-25T12:00:00Z",
			[]string{"25T02:15:00+02:00", "25T02:45:00+02:00", "25T03:15:00+01:00", "25T03:45:00+01:00"}},
		{"back, steps", "Europe/Berlin", "*/30 2 * * *", "2026-10-24T22:00:00Z", "2026-10-25T12:00:00Z",
			[]string{"25T02:00:00+02:00", "25T02:30:00+02:00", "25T02:00:00+01:00", "25T02:30:00+01:00"}},
		{"back, hourly", "Europe/Berlin", "0 * * * *", "2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z",
			[]string{"25T01:00:00+02:00", "25T02:00:00+02:00", "25T02:00:00+01:00", "25T03:00:00+01:00"}},
		{"New York forward", "America/New_York", "5 2 8 3 *", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z",
			[]string{"08T03:00:00-04:00"}},
		{"New York back", "America/New_York", "5 1 * * 0", "2026-11-01T00:00:00Z", "2026-11-08T00:00:00Z",
			[]string{"01T01:05:00-04:00"}},
		{"half an hour forward", "Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:00:00Z", "2026-10-04T15:00:00Z",
			[]string{"04T02:30:00+11:00"}},
		{"half an hour back, fixed", "Australia/Lord_Howe", "45 1 * * *", "2026-04-04T13:00:00Z", "2026-04-05T13:00:00Z",
			[]string{"05T01:45:00+11:00"}},
		{"half an hour back, steps", "Australia/Lord_Howe", "*/15 1 * * *", "2026-04-04T14:00:00Z", "2026-04-05T13:00:00Z",
			[]string{"05T01:00:00+11:00", "05T01:15:00+11:00", "05T01:30:00+11:00", "05T01:45:00+11:00", "05T01:30:00+10:30", "05T01:45:00+10:30"}},
		{"no midnight, fixed", "Asia/Beirut", "@daily", "2026-03-27T22:00:00Z", "2026-03-30T00:00:00Z",
			[]string{"28T00:00:00+02:00", "29T01:00:00+03:00", "30T00:00:00+03:00"}},
		{"no midnight, wildcard", "Asia/Beirut", "*/30 0 * * *", "2026-03-28T22:00:00Z", "2026-03-29T22:00:00Z",
			[]string{"30T00:00:00+03:00", "30T00:30:00+03:00"}},
		{"no midnight, on that day of the month", "America/Sao_Paulo", "0 0 4 11 *", "2018-11-01T00:00:00Z", "2018-12-01T00:00:00Z",
			[]string{"04T01:00:00-02:00"}},
		{"back over midnight, fixed", "America/Sao_Paulo", "30 23 * * *", "2018-02-17T03:00:00Z", "2018-02-19T03:00:00Z",
			[]string{"17T23:30:00-02:00", "18T23:30:00-03:00"}},
		{"back over midnight, wildcard", "America/Sao_Paulo", "*/30 23 * * 6", "2018-02-17T03:00:00Z", "2018-02-19T03:00:00Z",
			[]string{"17T23:00:00-02:00", "17T23:30:00-02:00", "17T23:00:00-03:00", "17T23:30:00-03:00"}},
		{"back over midnight, the new day begins once", "America/Sao_Paulo", "@daily", "2018-02-17T01:00:00Z", "2018-02-19T04:00:00Z",
			[]string{"17T00:00:00-02:00", "18T00:00:00-03:00", "19T00:00:00-03:00"}},
		{"a day that never was, fixed", "Pacific/Apia", "0 12 * * *", "2011-12-29T12:00:00Z", "2012-01-01T00:00:00Z",
			[]string{"29T12:00:00-10:00", "31T00:00:00+14:00", "31T12:00:00+14:00", "01T12:00:00+14:00"}},
		{"a day that never was, by its date", "Pacific/Apia", "0 12 30 12 *", "2011-12-01T12:00:00Z", "2012-02-01T00:00:00Z",
			[]string{"31T00:00:00+14:00"}},
		{"a day that never was, wildcard", "Pacific/Apia", "0 */12 * * *", "2011-12-29T12:00:00Z", "2011-12-31T12:00:00Z",
			[]string{"29T12:00:00-10:00", "31T00:00:00+14:00", "31T12:00:00+14:00", "01T00:00:00+14:00"}},
		{"most of a day shown twice, fixed", "Pacific/Kwajalein", "0 12 * * *", "1969-09-29T12:00:00Z", "1969-10-03T06:00:00Z",
			[]string{"30T12:00:00+11:00", "01T12:00:00-12:00", "02T12:00:00-12:00"}},
		{"beyond the recorded changes", "Europe/Berlin", "30 2 * * *", "2096-03-24T12:00:00Z", "2096-03-26T12:00:00Z",
			[]string{"25T03:00:00+02:00", "26T02:30:00+02:00"}},
		{"the last day of a leap year there", "America/New_York", "0 0,12 31 12 *", "2096-12-01T00:00:00Z", "2097-02-01T00:00:00Z",
			[]string{"31T00:00:00-05:00", "31T12:00:00-05:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := night(mustParse(t, c.expr, c.zone), instant(t, c.from), instant(t, c.to))
			if !slices.Equal(got, c.want) {
				t.Errorf("%s in %s:\n got %v\nwant %v", c.expr, c.zone, got, c.want)
			}
		})
	}
}

func TestTick_WhenAnHourIsRepeated_KeepsAFixedTickUntilTheNext(t *testing.T) {
	s := mustParse(t, "30 2 * * *", "Europe/Berlin")
	const first = "2026-10-25T00:30:00Z"
	for _, now := range []string{"2026-10-25T00:30:00Z", "2026-10-25T01:29:59Z", "2026-10-25T01:30:00Z", "2026-10-25T12:00:00Z"} {
		if got, _ := s.Tick(instant(t, now)); got.Key() != first {
			t.Errorf("Tick(%s) = %s, want the first 02:30, %s", now, got.Key(), first)
		}
	}
	for _, now := range []string{"2026-10-25T00:30:00Z", "2026-10-25T01:10:00Z", "2026-10-25T01:30:00Z"} {
		if got, _ := s.Next(instant(t, now)); got.Key() != "2026-10-26T01:30:00Z" {
			t.Errorf("Next(%s) = %s, want the next day's", now, got.Key())
		}
	}
	every := mustParse(t, "*/30 2 * * *", "Europe/Berlin")
	if got, _ := every.Tick(instant(t, "2026-10-25T01:30:00Z")); got.Key() != "2026-10-25T01:30:00Z" {
		t.Errorf("a step's second 02:30 has the tick %s", got.Key())
	}
}

func TestTick_WhenAnHourIsSkipped_IsDueAtTheChange(t *testing.T) {
	s := mustParse(t, "30 2 * * *", "Europe/Berlin")
	for now, want := range map[string]string{
		"2026-03-29T00:59:54Z": "2026-03-28T01:30:00Z",
		"2026-03-29T00:59:55Z": "2026-03-29T01:00:00Z",
		"2026-03-29T01:00:00Z": "2026-03-29T01:00:00Z",
		"2026-03-29T01:00:01Z": "2026-03-29T01:00:00Z",
		"2026-03-29T12:00:00Z": "2026-03-29T01:00:00Z",
	} {
		if got, _ := s.Tick(instant(t, now)); got.Key() != want {
			t.Errorf("Tick(%s) = %s, want %s", now, got.Key(), want)
		}
	}
}
