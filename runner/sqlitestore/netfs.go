package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/oncectl/oncectl/runner"
)

// fileSystem returns the name of the network file system that path is on, or
// "" if it is on none.
type fileSystem func(path string) (network string, err error)

// checkFileSystem refuses a path on a network file system: there, flock and
// SQLite's shared memory guard one machine at best, and users would think that
// they guard all. A path that does not exist yet is judged by its nearest
// folder.
func (s *Store) checkFileSystem(path string) error {
	for {
		network, err := s.fs(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path):
			path = filepath.Dir(path)
		case err != nil:
			return s.unusable(err, err)
		case network != "":
			return fmt.Errorf("%w: %s is on a network file system (%s), where a local store guards nothing: %s", runner.ErrRefused, path, network, elsewhere)
		default:
			return nil
		}
	}
}
