package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/oncectl/oncectl/runner"
)

const (
	// streamBatch is how many ids one statement claims at the most: enough
	// that its round trip and its commit do not count, few enough that memory
	// stays flat and no statement holds other claimers up for long.
	streamBatch = 10_000
	// streamBytes ends a batch of long ids earlier; a chunk more may be in it.
	streamBytes = 2 << 20
	// streamDelay bounds how long an id waits for others: half of the 100 ms
	// that README.md promises.
	streamDelay = 50 * time.Millisecond
	// streamAhead is how many batches are under way at once: while the store
	// claims one, the next is read and the answers of the last are written.
	streamAhead = 2
	// streamChunk is how many ids the reader hands over at once.
	streamChunk = 1000
)

// stream claims ids from r, one a line, as they come. A bad line ends it, after
// the lines before it were answered.
func (c *claiming) stream(ctx context.Context, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := make(chan []runner.EventID)
	next := make(chan []runner.EventID)
	readErr := make(chan error, 1)
	// Not waited for after an error elsewhere: a read of standard input cannot
	// be ended, and the process ends with the command.
	go func() {
		defer close(chunks)
		readErr <- readIDs(ctx, r, chunks)
	}()
	go func() {
		defer close(next)
		for ids := range batches(chunks) {
			select {
			case next <- ids:
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := c.answerInOrder(ctx, next); err != nil {
		return err
	}
	return <-readErr
}

// underWay is a batch that is being claimed.
type underWay struct {
	by   runner.Claimer
	ids  []runner.EventID
	won  []bool
	err  error
	done chan struct{} // closed when won and err are there
}

// begin begins to claim a batch, beside the one that may be under way.
func (c *claiming) begin(ctx context.Context, ids []runner.EventID, other []*underWay) *underWay {
	b := &underWay{by: c.claims, ids: ids, done: make(chan struct{})}
	if c.beside != nil && len(other) > 0 && other[0].by == c.claims {
		b.by = c.beside
	}
	go func() {
		defer close(b.done)
		b.won, b.err = c.claim(ctx, b.by, b.ids)
	}()
	return b
}

// answer prints what a batch won, as soon as that is known.
func (c *claiming) answer(b *underWay) error {
	if <-b.done; b.err != nil {
		return b.err
	}
	return c.print(b.ids, b.won)
}

// answerInOrder claims batches, streamAhead at a time, and prints their answers
// in input order. After an error it begins no more, but prints the answers of
// those that were begun: nobody else would ever know what they won.
func (c *claiming) answerInOrder(ctx context.Context, next <-chan []runner.EventID) error {
	var begun []*underWay
	for next != nil || len(begun) > 0 {
		in, done := next, (chan struct{})(nil)
		if len(begun) == streamAhead {
			in = nil
		}
		if len(begun) > 0 {
			done = begun[0].done
		}
		select {
		case ids, ok := <-in:
			if !ok {
				next = nil
				continue
			}
			begun = append(begun, c.begin(ctx, ids, begun))
		case <-done:
			err := c.answer(begun[0])
			begun = begun[1:]
			if err == nil {
				continue
			}
			for _, b := range begun {
				_ = c.answer(b) // the first error is the one to report
			}
			return err
		}
	}
	return nil
}

// batches gathers chunks into batches of at most streamBatch ids, each of
// which waits at most streamDelay for more.
func batches(chunks <-chan []runner.EventID) iter.Seq[[]runner.EventID] {
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
	for bytes := size(batch); len(batch)+streamChunk <= streamBatch && bytes < streamBytes; {
		select {
		case more, ok := <-chunks:
			if !ok {
				return batch
			}
			batch = append(batch, more...)
			bytes += size(more)
		case <-delay.C:
			return batch
		}
	}
	return batch
}

// size is the length of all ids.
func size(batch []runner.EventID) (n int) {
	for _, id := range batch {
		n += len(id)
	}
	return n
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
