package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/robfig/cron/v3"
)

// field is one of the five; its elements are read by robfig's parser, which
// differs from Debian's cron in what this file does itself: lists, stars, 7 as
// Sunday, and refusing what Debian's does not take ("?", "5/15", "*-3").
type field struct {
	name, takes string
	high        string // the last value, for advice
	place       cron.ParseOption
}

var (
	minuteField = field{"minute", "0-59", "59", cron.Minute}
	hourField   = field{"hour", "0-23", "23", cron.Hour}
	domField    = field{"day-of-month", "1-31", "31", cron.Dom}
	monthField  = field{"month", "1-12 or jan-dec", "12", cron.Month}
	dowField    = field{"day-of-week", "0-7 or sun-sat", "7", cron.Dow}
)

func parseExpr(expr string) (wallSet, error) {
	words := strings.Fields(expr)
	if len(words) > 0 {
		if err := refuseWord(words[0]); err != nil {
			return wallSet{}, err
		}
	}
	if len(words) == 1 && strings.HasPrefix(words[0], "@") {
		meant, ok := nickname(words[0])
		if !ok {
			return wallSet{}, errors.New("no such name; there are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually")
		}
		words = strings.Fields(meant)
	}
	if len(words) != 5 {
		return wallSet{}, fmt.Errorf("it has %d fields, not 5: minute, hour, day of month, month, day of week (no seconds, no command)", len(words))
	}
	set, err := parseFields([5]string(words))
	if err != nil {
		return wallSet{}, err
	}
	if _, ok := set.latest(0); !ok {
		return wallSet{}, fmt.Errorf("it never fires: no month of %s field %s has a day of %s field %s",
			monthField.name, quoteShort(words[3]), domField.name, quoteShort(words[2]))
	}
	return set, nil
}

// refuseWord refuses what other programs take in front of the fields, and says
// what to use instead.
func refuseWord(first string) error {
	switch {
	case strings.HasPrefix(first, "TZ="), strings.HasPrefix(first, "CRON_TZ="):
		return errors.New("it begins with a time zone; give that as --tz ZONE")
	case first == "@every":
		return errors.New("@every counts from a program's start, so hosts would not agree; use a step such as */15 * * * *")
	case first == "@reboot":
		return errors.New("@reboot is no time; use --once with a key that each start of the host has to itself")
	}
	return nil
}

// nickname returns what crontab(5) says a name is short for.
func nickname(name string) (string, bool) {
	switch name {
	case "@hourly":
		return "0 * * * *", true
	case "@daily", "@midnight":
		return "0 0 * * *", true
	case "@weekly":
		return "0 0 * * 0", true
	case "@monthly":
		return "0 0 1 * *", true
	case "@yearly", "@annually":
		return "0 0 1 1 *", true
	}
	return "", false
}

func parseFields(text [5]string) (wallSet, error) {
	var err error
	read := func(f field, s string) uint64 {
		set, e := f.parse(s)
		if e != nil && err == nil {
			err = fmt.Errorf("%s field %s: %w", f.name, quoteShort(s), e)
		}
		return set
	}
	set := wallSet{
		minute:  read(minuteField, text[0]),
		hour:    read(hourField, text[1]),
		dom:     read(domField, text[2]),
		month:   read(monthField, text[3]),
		dow:     read(dowField, text[4]),
		domStar: strings.HasPrefix(text[2], "*"),
		dowStar: strings.HasPrefix(text[4], "*"),
		fixed:   strings.Trim(text[0]+text[1], "0123456789,") == "",
	}
	return set, err
}

// parse returns the set of numbers that a field means.
func (f field) parse(text string) (uint64, error) {
	var set uint64
	for element := range strings.SplitSeq(text, ",") {
		b, err := f.element(element)
		if err != nil {
			return 0, err
		}
		set |= b
	}
	return set, nil
}

// element reads "*", "*/n", "a", "a-b" or "a-b/n".
func (f field) element(text string) (uint64, error) {
	span, step, stepped := strings.Cut(text, "/")
	low, high, ranged := strings.Cut(span, "-")
	switch {
	case stepped && !ranged && low != "*":
		return 0, fmt.Errorf("a step needs a range or *, such as */5 or 0-30/5: write a-%s/n for every nth from a", f.high)
	case ranged && (low == "*" || high == "*"), !plain(low), !plain(high), !plain(step):
		return 0, f.misread()
	case f.place == cron.Dow && isSeven(low) && (!ranged || isSeven(high)):
		return f.read(cron.Dow, strings.ReplaceAll(span, "7", "0")+text[len(span):])
	case f.place == cron.Dow && isSeven(high):
		return f.readToSunday(low, text[len(span):])
	}
	return f.read(f.place, text)
}

// readToSunday reads "low-7", or "low-7/n" with a step of "/n", of the days of
// the week. Hours go on beyond 6, where robfig's weeks end.
func (f field) readToSunday(low, step string) (uint64, error) {
	day, err := f.read(cron.Dow, low)
	if err != nil {
		return 0, err
	}
	days, err := f.read(cron.Hour, fmt.Sprintf("%d-7%s", bits.TrailingZeros64(day), step))
	return days&below(7) | days>>7, err
}

// read reads one element as robfig's parser does at that place of a line.
func (f field) read(place cron.ParseOption, element string) (uint64, error) {
	parsed, err := cron.NewParser(place).Parse(element)
	if err != nil {
		return 0, f.misread()
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return 0, f.misread()
	}
	return setAt(spec, place) & below(60), nil // without robfig's mark for a star
}

func setAt(spec *cron.SpecSchedule, place cron.ParseOption) uint64 {
	switch place {
	case cron.Minute:
		return spec.Minute
	case cron.Hour:
		return spec.Hour
	case cron.Dom:
		return spec.Dom
	case cron.Month:
		return spec.Month
	}
	return spec.Dow
}

func (f field) misread() error {
	return fmt.Errorf("it takes %s, *, ranges (a-b, a not after b), steps (*/n, a-b/n, n from 1) and lists (a,b,c)", f.takes)
}

// plain reports whether s is of letters and digits only, as are the numbers and
// names of crontab(5). The empty string is; "*" counts as one.
func plain(s string) bool {
	return s == "*" || strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func isSeven(s string) bool { return strings.TrimLeft(s, "0") == "7" }

// quoteShort quotes at most the first 40 bytes of s.
func quoteShort(s string) string {
	const most = 40
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", s[:most])
}
