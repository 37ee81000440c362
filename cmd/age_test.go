package cmd

import (
	"testing"
	"time"
)

func TestAge_TakesDaysAndDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90d": 90 * 24 * time.Hour, "-1d": -24 * time.Hour, "0d": 0, "25h": 25 * time.Hour, "1h30m": 90 * time.Minute, "0": 0,
	} {
		var a ageValue
		if err := a.Set(in); err != nil || time.Duration(a) != want {
			t.Errorf("%q is %v, %v, want %v", in, time.Duration(a), err, want)
		}
	}
	for _, in := range []string{"", "d", "90", "1.5d", "1d12h", "200000d", "-200000d", "99999999999999999999d", "two d"} {
		var a ageValue
		if err := a.Set(in); err == nil {
			t.Errorf("%q is taken for %v", in, time.Duration(a))
		}
	}
}
