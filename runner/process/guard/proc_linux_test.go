package guard

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// stat is a line of /proc/PID/stat with the given name.
func stat(name string) string {
	return "42 (" + name + ") T 7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 123456789012 1000 200\n"
}

func TestParseStat_WhateverTheName_FindsTheFields(t *testing.T) {
	want := proc{ident: ident{pid: 42, start: 123456789012}, parent: 7, group: 8, threads: 3, state: 'T'}
	for _, name := range []string{"sh", "", "a b", "a) S 1 2 (b", "((", "))", "a\nb", ") R 1 1 1", "\xff\x00"} {
		if got, ok := parseStat([]byte(stat(name))); !ok || got != want {
			t.Errorf("of %q: %+v, %v", name, got, ok)
		}
	}
}

func TestParseStat_WhenTheLineIsCut_IsRefused(t *testing.T) {
	whole := stat("sh")
	for cut := range strings.Index(whole, " 123456789012") + 1 {
		if p, ok := parseStat([]byte(whole[:cut])); ok {
			t.Errorf("%q is taken for %+v", whole[:cut], p)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(stat("sh")))
	f.Add([]byte(")"))
	f.Add([]byte("1 () "))
	f.Fuzz(func(t *testing.T, line []byte) { parseStat(line) })
}

func TestEachProc_WhenItWalks_FindsThisProcess(t *testing.T) {
	var found []proc
	eachProc(func(p proc) {
		if p.pid == os.Getpid() {
			found = append(found, p)
		}
	})
	if len(found) != 1 || found[0].parent != os.Getppid() || found[0].dead() || found[0].stopped() {
		t.Errorf("found %+v", found)
	}
}

// A variable that somebody set by accident must not make a guard.
func TestMarked_WhenThereIsNoSocket_IsNot(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, v := range []string{"", "x", "1x", ",quit", "-1", "99999", "99999999999999999999", fmt.Sprint(r.Fd())} {
		t.Setenv(Env, v)
		if fd, option, ok := Marked(); ok {
			t.Errorf("%q: %d, %q", v, fd, option)
		}
	}
	a, _ := connected(t)
	for v, want := range map[string]string{"%d": "", "%d," + LateQuit: LateQuit} {
		t.Setenv(Env, fmt.Sprintf(v, a.fd))
		if fd, option, ok := Marked(); !ok || fd != a.fd || option != want {
			t.Errorf("%q: %d, %q, %v", v, fd, option, ok)
		}
	}
}
