package cmd

import (
	"os"
	"strings"
	"unsafe"
)

// hidePasswords blanks the value of --database-url in the memory that the
// kernel shows as this process's command line, so that no password in it
// stays visible in the process list. os.Args keeps a copy.
func hidePasswords() {
	for i, arg := range os.Args {
		if arg == "--" {
			return
		}
		value, ok := strings.CutPrefix(arg, "--database-url=")
		if !ok && i > 0 && os.Args[i-1] == "--database-url" {
			value, ok = arg, true
		}
		if !ok || value == "" {
			continue
		}
		os.Args[i] = strings.Clone(arg)
		blank(value)
	}
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
