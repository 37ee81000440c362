// Package zones makes package time know all time zones on hosts and in images
// without tzdata: import it for its effect. It is time/tzdata with the same
// data, but compressed, which makes the program 320 kB smaller; it is unpacked
// only where a zone is asked for that the host does not know.
package zones

import (
	"compress/gzip"
	_ "embed"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	_ "unsafe" // for go:linkname
)

// packed is written by scripts/genzones: for each zone its name, a line break,
// the length of its file, a line break, and the file.
//
//go:embed zones.gz
var packed string

// registerLoadFromEmbeddedTZData is the door that package time keeps for
// time/tzdata. Should a later Go close it, the linker says so, and time/tzdata
// is there to be imported instead.
//
//go:linkname registerLoadFromEmbeddedTZData time.registerLoadFromEmbeddedTZData
func registerLoadFromEmbeddedTZData(func(name string) (string, error))

func init() { registerLoadFromEmbeddedTZData(load) }

// load is the file of a zone; ENOENT, which package time expects, if there is
// none.
func load(name string) (string, error) {
	all, err := unpacked()
	if err != nil {
		return "", err
	}
	if file, ok := all[name]; ok {
		return file, nil
	}
	return "", syscall.ENOENT
}

var unpacked = sync.OnceValues(func() (map[string]string, error) {
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for rest := string(b); rest != ""; {
		name, after, _ := strings.Cut(rest, "\n")
		digits, after, _ := strings.Cut(after, "\n")
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > len(after) {
			return nil, syscall.EINVAL
		}
		all[name], rest = after[:n], after[n:]
	}
	return all, nil
})
