package cmd

import (
	"os"
	"slices"
	"strings"
	"unsafe"
)

// secretFlags are the flags whose values can hold a password, with the part of
// a value that has to go.
var secretFlags = []struct {
	names  []string
	secret func(value string) string
}{
	{[]string{"--database-url"}, func(v string) string { return v }},
	{[]string{"--url"}, userinfo},
	{[]string{"--header", "-H"}, headerValue},
}

// hidePasswords blanks passwords in the memory that the kernel shows as this
// process's command line, so that none stays visible in the process list.
// os.Args keeps copies. A moment at the start remains: files and variables are
// the better place.
func hidePasswords() {
	for i := 1; i < len(os.Args) && os.Args[i] != "--"; i++ {
		name, value, inline := strings.Cut(os.Args[i], "=")
		if !inline {
			value = os.Args[i]
			name = os.Args[i-1]
		}
		for _, f := range secretFlags {
			if !slices.Contains(f.names, name) {
				continue
			}
			if part := f.secret(value); part != "" {
				os.Args[i] = strings.Clone(os.Args[i])
				blank(part)
			}
		}
	}
}

// userinfo is the part of a URL between its scheme and the host.
func userinfo(url string) string {
	i := strings.Index(url, "://")
	if i < 0 {
		return ""
	}
	authority, _, _ := strings.Cut(url[i+3:], "/")
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
