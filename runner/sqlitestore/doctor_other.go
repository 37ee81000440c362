//go:build !linux

package sqlitestore

// fileSystemKind knows no kinds here.
func fileSystemKind(string) string { return "" }
