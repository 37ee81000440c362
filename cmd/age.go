package cmd

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// ageValue is a duration that may be given in days: 90d, or 36h as elsewhere. A
// day has 24 hours.
type ageValue time.Duration

func addAge(f *pflag.FlagSet, age *time.Duration, name, usage string) {
	f.Var((*ageValue)(age), name, usage)
}

func (a *ageValue) String() string { return time.Duration(*a).String() }
func (a *ageValue) Type() string   { return "duration" }

func (a *ageValue) Set(s string) error {
	const day = 24 * time.Hour
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n > int64(math.MaxInt64/day) || n < int64(math.MinInt64/day) {
			return fmt.Errorf("%q is no number of days", s)
		}
		*a = ageValue(time.Duration(n) * day)
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("it is a number of days, such as 90d, or a duration, such as 25h or 30m")
	}
	*a = ageValue(d)
	return nil
}
