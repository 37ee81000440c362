//go:build !linux && !darwin

package sqlitestore

// fileSystemOf knows no file systems here.
func fileSystemOf(string) (string, error) { return "", nil }
