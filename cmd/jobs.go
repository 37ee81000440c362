package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/process"
)

// prepareJobs starts the guard of a command that is about to run, and listens
// for the signals that are to reach it.
func prepareJobs(env *Env, name string) (*process.Starter, <-chan os.Signal) {
	signals, _ := process.Signals() // for as long as this process lives
	return process.Prepare(process.Options{Name: name, TempDir: env.Getenv("TMPDIR")}), signals
}

// dieLike ends this process as its command ended, where a shell on the same
// terminal has to see that a key ended both.
func dieLike(jobs *process.Starter, exit runner.Exit) {
	if (exit.Signal == syscall.SIGINT || exit.Signal == syscall.SIGQUIT) && jobs.SharesTerminal() {
		process.DieOf(exit.Signal)
	}
}

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
