package cmd

import (
	"bytes"
	"os"
	"testing"
	"time"
)

func TestProgress_WhenEventsRush_PaintsTenTimesASecondAndLeavesNothing(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(1000, 0)
	p := &progress{w: &b, now: func() time.Time { return now }, start: now}
	for range 300 {
		now = now.Add(time.Millisecond)
		p.Add()
	}
	p.Close()
	want := "\rsending: 1, 10/s\x1b[K\rsending: 101, 1000/s\x1b[K\rsending: 201, 1000/s\x1b[K\r\x1b[K"
	if b.String() != want {
		t.Errorf("painted %q, want %q", b.String(), want)
	}
}

func TestProgress_WhenThereIsNoTerminal_PaintsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := newProgress(&Env{Err: w, Getenv: func(string) string { return "xterm" }, Now: time.Now})
	p.Add()
	p.Close()
	w.Close()
	if n, _ := r.Read(make([]byte, 10)); n > 0 {
		t.Errorf("painted %d bytes into a pipe", n)
	}
}
