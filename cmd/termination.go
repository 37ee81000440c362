package cmd

import (
	"fmt"
	"os"
	"strings"

	"github.com/oncectl/oncectl/runner"
)

// terminationLog is where Kubernetes looks for a container's last words
// (terminationMessagePath, unless the Pod names another).
const terminationLog = "/dev/termination-log"

// maxTerminationMessage keeps the line short, in bytes: Kubernetes shows at most 4096
// bytes of a container, and 12 kB of all that a Pod has.
const maxTerminationMessage = 1024

// leaveTerminationMessage adds a line to the container's last words, which
// 'kubectl describe pod' shows. It does so for a run, and for any command that
// is the container's main process; not in a job, whose words are its own. Where
// there is nowhere to leave it, stderr has it all the same.
func leaveTerminationMessage(env *Env, line string) {
	if env.Getenv("KUBERNETES_SERVICE_HOST") == "" || env.inRun() {
		return
	}
	f, err := os.OpenFile(env.TerminationLog, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	line = oneLine(line)
	if len(line) > maxTerminationMessage {
		line = runner.Shorten(line, maxTerminationMessage-len("…"))
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

// jobMessage is the line about a job that did not succeed.
func jobMessage(job runner.Job, res runner.Result) string {
	line := fmt.Sprintf("oncectl: the job of lock %q failed: %s", job.Lock.Name, res.Reason)
	if last := lastLine(res.Tail); last != "" {
		line += ": " + last
	}
	return line
}

// lastLine is the last line that is not empty, made printable.
func lastLine(p []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(p), "\uFFFD"))
	return printable(text[strings.LastIndexByte(text, '\n')+1:])
}
