package delivery

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/oncectl/oncectl/runner"
)

// The words for a person, in one line. They name the receiver by scheme, host
// and port only: user, path and query of a URL often are its password (a chat
// service's webhook is nothing but a secret path). They hold nothing of the
// answer's body, which may repeat the request's headers.

// maxErrorText bounds what a foreign error adds, in bytes.
const maxErrorText = 300

// statusError says what host answered.
func statusError(host string, res *http.Response, v verdict) string {
	text := fmt.Sprintf("%s answered %d", host, res.StatusCode)
	if name := http.StatusText(res.StatusCode); name != "" {
		text += " " + name
	}
	switch {
	case v == doubtful:
		text += ": it may have been processed"
	case res.StatusCode/100 == 3:
		text += redirectNote(res.Header.Get("Location"))
	}
	return text
}

// redirectNote names where a redirect leads, without the parts that can be
// credentials.
func redirectNote(location string) string {
	if location == "" {
		return ", without Location: redirects are not followed"
	}
	u, err := url.Parse(location)
	if err != nil {
		return ", with a Location that is no URL: redirects are not followed"
	}
	place := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return fmt.Sprintf(" to Location %s: redirects are not followed, correct the URL", oneLine(place.String()))
}

// unsentError says why nothing was sent.
func unsentError(host string, err error) string {
	return fmt.Sprintf("the request to %s was not sent: %s", host, oneLine(err.Error()))
}

// unansweredError says that a request was sent and its answer not had.
func unansweredError(host string, err error) string {
	return fmt.Sprintf("the request to %s was sent, but no whole answer came: %s: it may have been processed",
		host, oneLine(err.Error()))
}

// oneLine makes foreign text fit for a log line and a terminal.
func oneLine(s string) string {
	return runner.Shorten(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " ")), maxErrorText)
}
