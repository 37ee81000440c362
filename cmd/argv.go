package cmd

import (
	"os"
	"strings"
	"unsafe"
)

// secretFlags are the flags whose values can hold a password, with the part of
// a value that has to go.
var secretFlags = map[string]func(value string) string{
	"--database-url": func(v string) string { return v },
	"--url":          userinfo,
	"--ping":         func(v string) string { return v },
	"--header":       headerValue,
	"-H":             headerValue,
}

// switches are the one-letter flags without a value: others may follow them in
// the same argument.
const switches = "hv"

// hidePasswords blanks passwords in the memory that the kernel shows as this
// process's command line, so that none stays visible in the process list.
// os.Args keeps copies. A moment at the start remains: files and variables are
// the better place.
func hidePasswords() {
	var secret func(string) string // of the value that is the next argument
	for i := 1; i < len(os.Args) && (secret != nil || os.Args[i] != "--"); i++ {
		value, inline := os.Args[i], secret != nil
		if !inline {
			secret, value, inline = secretFlag(value)
		}
		if !inline {
			continue // the value comes next, if it was such a flag
		}
		if secret != nil {
			if part := secret(value); part != "" {
				os.Args[i] = strings.Clone(os.Args[i])
				blank(part)
			}
		}
		secret = nil
	}
}

// secretFlag finds the flag in an argument, with the value that is in it:
// --name=value, -Hvalue, -H=value, -vHvalue.
func secretFlag(arg string) (secret func(string) string, value string, inline bool) {
	if strings.HasPrefix(arg, "--") {
		name, value, inline := strings.Cut(arg, "=")
		return secretFlags[name], value, inline
	}
	if !strings.HasPrefix(arg, "-") {
		return nil, "", false
	}
	letters := strings.TrimLeft(arg[1:], switches)
	if letters == "" {
		return nil, "", false
	}
	value = strings.TrimPrefix(letters[1:], "=")
	return secretFlags["-"+letters[:1]], value, len(letters) > 1
}

// userinfo is the part of a URL between its scheme and the host.
func userinfo(url string) string {
	i := strings.Index(url, "://")
	if i < 0 {
		return ""
	}
	authority := url[i+3:]
	if end := strings.IndexAny(authority, "/?#"); end >= 0 {
		authority = authority[:end]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		return authority[:at]
	}
	return ""
}

// headerValue is what follows a header's name; nothing of @FILE.
func headerValue(header string) string {
	if strings.HasPrefix(header, "@") {
		return ""
	}
	_, value, _ := strings.Cut(header, ":")
	return value
}

// blank overwrites the bytes of s, which must be part of the process's
// original argument memory: the Go runtime does not copy it into os.Args, and
// nothing else refers to it.
func blank(s string) {
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for i := range b {
		b[i] = 'x'
	}
}
