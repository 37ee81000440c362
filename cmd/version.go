package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the release build (-ldflags -X), see
// scripts/release.
var version, commit string

func newVersionCmd(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the commit it was built from",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintf(env.Out, "oncectl %s (%s) %s/%s %s\n", versionString(), commitString(), runtime.GOOS, runtime.GOARCH, runtime.Version())
			return nil
		},
	}
}

// versionString is the release's version, or what the build recorded.
func versionString() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func commitString() string {
	if commit != "" {
		return commit
	}
	recorded := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		recorded = recordedCommit(info.Settings)
	}
	return firstNonEmpty(recorded, "unknown commit")
}

// recordedCommit is the commit that the go command recorded, if it did, with
// "-dirty" for a tree that had other changes.
func recordedCommit(settings []debug.BuildSetting) string {
	var hash, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			hash = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if hash == "" {
		return ""
	}
	return hash[:min(12, len(hash))] + dirty
}
