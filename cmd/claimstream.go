package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/oncectl/oncectl/runner"
)

const (
	// streamBatch is how many ids one statement claims at the most: enough
	// that its round trip and its commit do not count, few enough that memory
	// stays flat and no statement holds other claimers up for long.
	streamBatch = 10_000
	// streamDelay bounds how long an id waits for others: half of the 100 ms
	// that README.md promises.
	streamDelay = 50 * time.Millisecond
	// streamChunk is how many ids the reader hands over at once.
	streamChunk = 1000
)

// stream claims ids from r, one a line, as they come. A bad line ends it, after
// the lines before it were answered.
func (c *claiming) stream(ctx context.Context, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := make(chan []runner.EventID)
	readErr := make(chan error, 1)
	// Not waited for after an error elsewhere: a read of standard input cannot
	// be ended, and the process ends with the command.
	go func() {
		defer close(chunks)
		readErr <- readIDs(ctx, r, chunks)
	}()
	for batch := range batches(chunks) {
		if err := c.batch(ctx, batch); err != nil {
			return err
		}
	}
	return <-readErr
}

// batches gathers chunks into batches of at most streamBatch ids, each of
// which waits at most streamDelay for more.
func batches(chunks <-chan []runner.EventID) func(yield func([]runner.EventID) bool) {
	return func(yield func([]runner.EventID) bool) {
		for first := range chunks {
			batch := append(make([]runner.EventID, 0, streamBatch), first...)
			if !yield(gather(batch, chunks)) {
				return
			}
		}
	}
}

// gather adds chunks to batch until it is full, its time is over or there are
// no more.
func gather(batch []runner.EventID, chunks <-chan []runner.EventID) []runner.EventID {
	delay := time.NewTimer(streamDelay)
	defer delay.Stop()
	for len(batch)+streamChunk <= streamBatch {
		select {
		case more, ok := <-chunks:
			if !ok {
				return batch
			}
			batch = append(batch, more...)
		case <-delay.C:
			return batch
		}
	}
	return batch
}

// readIDs sends the ids of r in chunks: what is there at once, at most
// streamChunk.
func readIDs(ctx context.Context, r io.Reader, chunks chan<- []runner.EventID) error {
	br := bufio.NewReaderSize(r, 64<<10)
	line := 0
	for {
		chunk, err := readChunk(br, &line)
		if len(chunk) > 0 {
			select {
			case chunks <- chunk:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// readChunk reads ids until the next read would wait for more input.
func readChunk(br *bufio.Reader, line *int) (chunk []runner.EventID, err error) {
	for len(chunk) < streamChunk {
		id, err := readID(br, *line+1)
		if err != nil {
			return chunk, err
		}
		*line++
		chunk = append(chunk, id)
		if br.Buffered() == 0 {
			break
		}
	}
	return chunk, nil
}

// readID reads line number n. Only its newline is taken off.
func readID(br *bufio.Reader, n int) (runner.EventID, error) {
	b, err := br.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", fmt.Errorf("line %d: %w: an event id has at most %d bytes", n, runner.ErrInvalid, runner.MaxIDBytes)
	case errors.Is(err, io.EOF) && len(b) > 0: // a last line without newline
	case errors.Is(err, io.EOF):
		return "", io.EOF
	case err != nil:
		return "", fmt.Errorf("reading standard input: %w", err)
	}
	if b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	id, err := runner.ParseEventID(string(b))
	if err != nil {
		return "", lineError(n, b, err)
	}
	return id, nil
}

// lineError names a bad line.
func lineError(n int, b []byte, err error) error {
	err = fmt.Errorf("line %d: %w", n, err)
	if len(b) > 0 && b[len(b)-1] == '\r' {
		return hinted{err, "the input has CRLF line ends; take them off, for example with tr -d '\\r'"}
	}
	return err
}
