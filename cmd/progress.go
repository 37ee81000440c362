package cmd

import (
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far a batch is, on a terminal only.
type progress struct{ bar *progressbar.ProgressBar }

func newProgress(env *Env) *progress {
	f, ok := env.Err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || env.Getenv("TERM") == "dumb" {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(f), progressbar.OptionSetDescription("sending"),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionClearOnFinish())}
}

// Add counts one event.
func (p *progress) Add() {
	if p.bar != nil {
		_ = p.bar.Add(1) // a terminal that is gone is no reason to stop
	}
}

// Close takes the bar away.
func (p *progress) Close() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
