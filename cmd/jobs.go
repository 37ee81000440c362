package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// withSelfOnPath makes sure that the job finds oncectl even where cron's PATH
// lacks it: the folder of this program comes last on the PATH.
func withSelfOnPath(env []string) []string {
	self, err := os.Executable()
	if err != nil || filepath.Base(self) != "oncectl" {
		return env
	}
	path := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	if hasProgram(path, "oncectl") {
		return env
	}
	if path != "" {
		path += string(os.PathListSeparator)
	}
	return setEnv(env, "PATH", path+filepath.Dir(self))
}

// hasProgram reports whether name is found on path.
func hasProgram(path, name string) bool {
	for _, dir := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil && found != "" {
			return true
		}
	}
	return false
}

// setEnv returns env with name set to value.
func setEnv(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, name+"=") {
			out = append(out, kv)
		}
	}
	return append(out, name+"="+value)
}
