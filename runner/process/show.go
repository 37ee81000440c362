package process

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// show writes out what was kept back.
func (s *streams) show() error {
	var err error
	if s.spoolOut != nil {
		err = copyFile(s.real[1], s.spoolOut)
	}
	if s.spoolErr != nil && s.spoolErr != s.spoolOut {
		err = errors.Join(err, copyFile(s.real[2], s.spoolErr))
	}
	if s.ringOut != nil {
		err = errors.Join(err, s.showRing(s.real[1], s.ringOut))
	}
	if s.ringErr != nil && s.ringErr != s.ringOut {
		err = errors.Join(err, s.showRing(s.real[2], s.ringErr))
	}
	if err != nil {
		return fmt.Errorf("showing the job's output: %w", err)
	}
	return nil
}

// showRing says what is missing before it shows the rest.
func (s *streams) showRing(fd int, r *ring) error {
	if n := r.Dropped(); n > 0 && s.real[2] >= 0 {
		note := fmt.Sprintf("oncectl: the first %d bytes of the job's output are lost: no temporary file could be made\n", n)
		_ = writeAll(s.real[2], []byte(note))
	}
	return writeAll(fd, r.Last(heldBack))
}

// copyFile copies what f holds now; a background process may still be adding
// to it.
func copyFile(fd int, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	from := io.NewSectionReader(f, 0, info.Size())
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if werr := writeAll(fd, buf[:n]); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// endOf is at most the last n bytes of f; none of a file that is nil.
func endOf(f *os.File, n int64) []byte {
	if f == nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	from := max(0, info.Size()-n)
	p, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return nil
	}
	return p
}
