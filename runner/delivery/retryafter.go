package delivery

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfterLimit caps what a receiver can ask for, so that no sum of times
// overflows. Anything near it is beyond every --max-wait.
const retryAfterLimit = 100 * 365 * 24 * time.Hour

// noRetryAfter stands for an answer that does not say when to come back.
const noRetryAfter = time.Duration(-1)

// retryAfter reads how long the answer with header h, had at now, wants
// silence; the longest, if it says so more than once. Unreadable and negative
// values count as none (noRetryAfter).
func retryAfter(h http.Header, now time.Time) time.Duration {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // the receiver's clock, which its Retry-After is told by
	}
	longest := noRetryAfter
	for _, value := range h.Values("Retry-After") {
		longest = max(longest, parseRetryAfter(value, now))
	}
	return longest
}

// parseRetryAfter reads seconds (fractions are rounded up) or an HTTP date in
// one of its three forms (RFC 9110, 5.6.7 and 10.2.3). A date that has passed
// is 0.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, ok := parseSeconds(value); ok {
		return seconds
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return noRetryAfter
	}
	if date.Year() < now.Year()-50 {
		// The form with two digits for the year: one that seems more than 50
		// years off means the century nearer to now.
		if _, err := time.Parse(time.RFC850, value); err == nil {
			date = date.AddDate(100, 0, 0)
		}
	}
	return min(max(0, date.Sub(now)), retryAfterLimit)
}

// parseSeconds reads a decimal number of seconds that is not negative.
func parseSeconds(value string) (time.Duration, bool) {
	if value == "" || value[0] == '-' || strings.Trim(value, "0123456789.eE+-") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil && !math.IsInf(seconds, 1) {
		return 0, false
	}
	if seconds >= retryAfterLimit.Seconds() {
		return retryAfterLimit, true
	}
	return time.Duration(math.Ceil(seconds)) * time.Second, true
}
