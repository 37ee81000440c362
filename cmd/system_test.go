package cmd

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// Elsewhere than on Linux a person should know what is missing, but has nothing
// to do about it.
func TestFindSystem_WhenNotLinux_IsANote(t *testing.T) {
	if found := findSystem("linux"); len(found) != 0 {
		t.Errorf("Linux: %v", found)
	}
	found := findSystem("darwin")
	if len(found) != 1 || found[0].Severity != runner.Note || !strings.HasPrefix(found[0].Found, "darwin, not Linux: ") {
		t.Errorf("darwin: %v", found)
	}
	if needsPerson(found) {
		t.Error("doctor would end with 1 on darwin")
	}
}

func TestRecordedCommit_WhenFilesHadChanged_SaysDirty(t *testing.T) {
	hash := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	for _, c := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, ""},
		{[]debug.BuildSetting{hash}, "0123456789ab"},
		{[]debug.BuildSetting{hash, {Key: "vcs.modified", Value: "false"}}, "0123456789ab"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, hash}, "0123456789ab-dirty"},
	} {
		if got := recordedCommit(c.settings); got != c.want {
			t.Errorf("%v: %q, want %q", c.settings, got, c.want)
		}
	}
}
