//go:build linux

package main

import (
	"fmt"
	"sync"
	"testing"
)

// bench is a testing.TB outside of a test, for what pgtest offers: it gives up
// where a test would fail or be skipped.
type bench struct {
	testing.TB // nil: what is not below is not used

	mu   sync.Mutex
	ends []func()
}

// gaveUp is what a bench panics with.
type gaveUp string

func (t *bench) Helper() {}

func (t *bench) Fatal(args ...any)                 { panic(gaveUp(fmt.Sprint(args...))) }
func (t *bench) Fatalf(format string, args ...any) { panic(gaveUp(fmt.Sprintf(format, args...))) }
func (t *bench) Skip(args ...any)                  { panic(gaveUp(fmt.Sprint(args...))) }

func (t *bench) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends = append(t.ends, f)
}

func (t *bench) cleanUp() {
	for {
		t.mu.Lock()
		n := len(t.ends)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		f := t.ends[n-1]
		t.ends = t.ends[:n-1]
		t.mu.Unlock()
		f()
	}
}
