//go:build !linux

package fusetest

import "testing"

// Mount is for Linux only.
func Mount(t testing.TB, _, _, _ string) {
	t.Helper()
	t.Skip("needs Linux, for FUSE")
}
