package schedule

import (
	"errors"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

func numbers(set uint64) []int {
	var out []int
	for ; set != 0; set &= set - 1 {
		out = append(out, bits.TrailingZeros64(set))
	}
	return out
}

func TestField_WhenValid_MeansWhatDebiansCronMeans(t *testing.T) {
	for _, c := range []struct {
		field field
		text  string
		want  []int
	}{
		{minuteField, "*/20", []int{0, 20, 40}},
		{minuteField, "*/90", []int{0}},
		{minuteField, "5,05,7", []int{5, 7}},
		{minuteField, "1-10/4,58-59", []int{1, 5, 9, 58, 59}},
		{minuteField, "1-2/9223372036854775807", []int{1}},
		{hourField, "23", []int{23}},
		{domField, "*/10", []int{1, 11, 21, 31}},
		{monthField, "JAN,mar-May", []int{1, 3, 4, 5}},
		{monthField, "dec", []int{12}},
		{dowField, "7", []int{0}},
		{dowField, "07", []int{0}},
		{dowField, "0-7", []int{0, 1, 2, 3, 4, 5, 6}},
		{dowField, "5-7", []int{0, 5, 6}},
		{dowField, "1-7/2", []int{0, 1, 3, 5}},
		{dowField, "2-7/2", []int{2, 4, 6}},
		{dowField, "fri-7", []int{0, 5, 6}},
		{dowField, "7-7", []int{0}},
		{dowField, "7-7/3", []int{0}},
		{dowField, "*/2", []int{0, 2, 4, 6}},
		{dowField, "*/7", []int{0}},
		{dowField, "mon-Fri/2,SUN", []int{0, 1, 3, 5}},
	} {
		got, err := c.field.parse(c.text)
		if err != nil || !slices.Equal(numbers(got), c.want) {
			t.Errorf("%s %q = %v, %v; want %v", c.field.name, c.text, numbers(got), err, c.want)
		}
	}
}

func TestParse_WhenInvalid_NamesExpressionAndField(t *testing.T) {
	for expr, wants := range map[string][]string{
		"":                                {"0 fields"},
		"   ":                             {"0 fields"},
		"* * * *":                         {"4 fields"},
		"0 * * * * *":                     {"6 fields", "no seconds"},
		"61 * * * *":                      {`minute field "61"`, "0-59"},
		"-1 * * * *":                      {`minute field "-1"`},
		"*/0 * * * *":                     {`minute field "*/0"`},
		"*/ * * * *":                      {`minute field "*/"`},
		"*/99999999999999999999 * * * *":  {"minute field"},
		"1-5/* * * * *":                   {"minute field"},
		"*-5 * * * *":                     {"minute field"},
		"1-* * * * *":                     {"minute field"},
		"5-1 * * * *":                     {"minute field", "a not after b"},
		"1,,2 * * * *":                    {"minute field"},
		", * * * *":                       {"minute field"},
		"5/15 * * * *":                    {"minute field", "a-59/n"},
		"? * * * *":                       {"minute field"},
		"+5 * * * *":                      {"minute field"},
		"mon * * * *":                     {"minute field"},
		"1/2/3 * * * *":                   {"minute field"},
		"1-2-3 * * * *":                   {"minute field"},
		"0 24 * * *":                      {`hour field "24"`, "0-23"},
		"0 0 0 * *":                       {`day-of-month field "0"`, "1-31"},
		"0 0 L * *":                       {"day-of-month field"},
		"0 0 * 13 *":                      {`month field "13"`, "1-12 or jan-dec"},
		"0 0 * january *":                 {"month field"},
		"0 0 * * 8":                       {`day-of-week field "8"`, "0-7 or sun-sat"},
		"0 0 * * 7-1":                     {"day-of-week field"},
		"0 0 * * fri-sun":                 {"day-of-week field"},
		"0 0 * * 8-7":                     {"day-of-week field"},
		"0 0 * * -7":                      {"day-of-week field"},
		"0 0 * * 5-7/0":                   {"day-of-week field"},
		"0 0 * * 5#2":                     {"day-of-week field"},
		"0 0 30 2 *":                      {"never fires", `"30"`, `"2"`},
		"0 0 31 4 *":                      {"never fires"},
		"0 0 30-31 feb */2":               {"never fires"},
		"0 0 31 2,4,6,9,11 *":             {"never fires"},
		"@every 5m":                       {"@every", "*/15"},
		"@reboot":                         {"@reboot", "--once"},
		"@fortnightly":                    {"@hourly"},
		"@DAILY":                          {"@daily"},
		"@daily x":                        {"2 fields"},
		"TZ=":                             {"--tz"},
		"TZ=UTC 0 0 * * *":                {"--tz"},
		"CRON_TZ=Europe/Berlin 0 0 * * *": {"--tz"},
		strings.Repeat("1,", 1e5):         {"1 fields", "…"},
	} {
		_, err := Parse(expr, "UTC")
		if !errors.Is(err, runner.ErrInvalid) {
			t.Errorf("Parse(%.40q) = %v, want ErrInvalid", expr, err)
			continue
		}
		for _, want := range append(wants, "cron expression "+quoteShort(expr)) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("Parse(%.40q) = %v, want it to say %q", expr, err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Errorf("Parse(%.40q) = %v, want one line", expr, err)
		}
	}
}

func TestParse_WhenDayFieldsAreBothGiven_FollowsDebiansStars(t *testing.T) {
	const from, to = "2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z" // begins on a Monday
	for expr, want := range map[string][]int{
		"0 0 * * *":        nil, // every day; see below
		"0 0 13 * *":       {13},
		"0 0 * * 1":        {1, 8, 15, 22, 29},
		"0 0 13 * 1":       {1, 8, 13, 15, 22, 29}, // either
		"0 0 */2 * 1":      {1, 15, 29},            // both: the field begins with a star
		"0 0 1-31/2 * 1":   {1, 3, 5, 7, 8, 9, 11, 13, 15, 17, 19, 21, 22, 23, 25, 27, 29},
		"0 0 1-7 * */7":    {7}, // both: the first Sunday
		"0 0 */10,13 * 6":  {13},
		"0 0 13,*/10 * 6":  {1, 6, 11, 13, 20, 21, 27}, // either: it begins with 13
		"0 0 1 * 0-7":      nil,
		"  0\t0 13  * *  ": {13},
	} {
		s := mustParse(t, expr, "UTC")
		var got []int
		for at, ok := s.Next(instant(t, from).Add(-time.Second)); ok && at.At().Before(instant(t, to)); at, ok = s.Next(at.At()) {
			got = append(got, at.At().Day())
		}
		if want == nil && len(got) == 30 {
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q fires on %v, want %v", expr, got, want)
		}
	}
}

func TestParse_WhenANickname_MeansItsFields(t *testing.T) {
	for name, fields := range map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	} {
		if got, want := mustParse(t, name, "UTC").set, mustParse(t, fields, "UTC").set; got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0 3 * * *", "*/0 * * * *", "0 0 29 2 */7", "TZ= ", "@every 1s", "1-7/2 5-7 * jan sun", "0 0 31 2 1", "* 2 25-31 3 */7",
		"9223372036854775807-9223372036854775808/99999999999999999999 * * * *"} {
		f.Add(s, int64(1796000000))
	}
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expr string, sec int64) {
		s, err := ParseIn(expr, loc)
		if err != nil {
			if !errors.Is(err, runner.ErrInvalid) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v is not one line of ErrInvalid", err)
			}
			return
		}
		now := time.Unix(sec, 0)
		tick, ok := s.Tick(now)
		if ok && tick.At().After(now.Add(mostEarly)) {
			t.Errorf("the tick of %v is %s", now, tick.Key())
		}
		if next, ok := s.Next(now); ok && !next.At().After(now) {
			t.Errorf("the next after %v is %s", now, next.Key())
		}
	})
}
