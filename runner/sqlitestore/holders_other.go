//go:build !linux

package sqlitestore

// flocks: no list of locks is known here.
func flocks() map[fileID]int { return nil }
