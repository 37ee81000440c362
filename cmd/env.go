// Package cmd is oncectl's command line: one file a command. It parses, puts
// the packages under runner together and prints; it decides nothing that
// matters to a claim, a lock or a job.
package cmd

import (
	"io"
	"log/slog"
	"os"
	"time"
)

// Env is what a command gets from outside. Nothing else in this package
// touches os.Stdout, os.Getenv or os.Exit.
type Env struct {
	Args    []string
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Environ []string
	Getenv  func(string) string
	Now     func() time.Time
	// TerminationLog is the file of a container's last words.
	TerminationLog string
	Log            *slog.Logger
	level          *slog.LevelVar
}

// processEnv is the Env of this process.
func processEnv() *Env {
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	return &Env{
		Args:           os.Args[1:],
		In:             os.Stdin,
		Out:            os.Stdout,
		Err:            os.Stderr,
		Environ:        os.Environ(),
		Getenv:         os.Getenv,
		Now:            time.Now,
		TerminationLog: terminationLog,
		Log:            slog.New(newLogHandler(os.Stderr, level)),
		level:          level,
	}
}

// inRun reports whether a run above this process wants its claims.
func (e *Env) inRun() bool { return e.Getenv("ONCECTL_SOCKET") != "" }
