package cmd

import (
	"io"
	"log/slog"
)

// newLogHandler writes log lines that begin as all of oncectl's messages do:
// no time, which cron and journald add, and the level only as a word.
func newLogHandler(w io.Writer, level slog.Leveler) slog.Handler {
	return slog.NewTextHandler(prefixed{w}, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		},
	})
}

// prefixed puts the program's name before each write, which for slog's
// handlers is one line.
type prefixed struct{ w io.Writer }

func (p prefixed) Write(line []byte) (int, error) {
	if _, err := p.w.Write(append([]byte("oncectl: "), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
