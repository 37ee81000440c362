package cmd_test

import (
	"os"
	"os/exec"
	"strings"
)

// live runs the example's steps, and perhaps all of them once more.
func (w *world) live() {
	for _, x := range needs {
		if w.has(x.has) {
			x.make(w)
		}
	}
	before := w.effects()
	w.runSteps()
	for _, x := range twice {
		if !w.has(x.has) {
			continue
		}
		w.runSteps()
		if got := w.effects() - before; got != x.effects {
			w.t.Errorf("%d mails and requests after two runs, not %d", got, x.effects)
		}
		return
	}
}

// runSteps runs the steps as the reader would: a shell's lines in a shell that
// ends at the first failure, a crontab's as cron does, SQL by psql.
func (w *world) runSteps() {
	for _, step := range w.steps {
		text := w.rewritten(step)
		switch {
		case w.lang == "crontab" || schedule.MatchString(step):
			w.cron(step)
		case w.lang == "sql":
			c := w.shell(`psql -q -v ON_ERROR_STOP=1 "$DATABASE_URL"`)
			c.Stdin = strings.NewReader(text)
			pr := w.ends(c, step)
			if strings.Contains(step, "-- true") && !strings.Contains(pr.out.String(), "\n t\n") {
				w.t.Errorf("%s\nstdout: %s", step, pr.out.String())
			}
		case strings.Contains(step, "ONCECTL_SOCKET"):
			w.write("job.sh", text)
			w.ends(w.shell("oncectl run --lock job -- sh -eu job.sh"), step)
		default:
			w.ends(w.shell(text), step)
		}
	}
}

// ends runs a step and checks how it ends. What fails within a pipe the shell
// does not tell; a wrong flag there shows on stderr.
func (w *world) ends(c *exec.Cmd, step string) *process {
	w.t.Helper()
	pr := w.startCommand(c).ends(status(step))
	if strings.Contains(pr.err.String(), "oncectl: hint: see 'oncectl") {
		w.t.Errorf("%s\nstderr: %s", step, pr.err.String())
	}
	return pr
}

// cron runs the lines of a crontab: a command's environment is what the lines
// above have set, and little else; % is a new line, and what follows the first
// is the command's input. A line that goes well says nothing, since cron would
// mail that.
func (w *world) cron(step string) {
	w.oncectl("claims") // the notice that the store is new is for a person
	env := []string{"PATH=/usr/bin:/bin", "SHELL=/bin/sh", "HOME=" + w.dir, "LOGNAME=somebody"}
	if w.manual {
		env[0] = "PATH=" + binDir + ":/usr/bin:/bin" // where packages have it
	}
	for _, line := range w.cronLines(step) {
		if line.env != "" {
			env = append(env, line.env)
			continue
		}
		w.t.Logf("cron runs %q", line.command)
		c := exec.Command("/bin/sh", "-c", line.command)
		c.Dir, c.Env, c.Stdin = w.dir, append(append([]string{}, env...), w.env...), strings.NewReader(line.stdin)
		pr := w.ends(c, step)
		if said := pr.out.String() + pr.err.String(); said != "" && status(step) == 0 {
			w.t.Errorf("cron would mail %q", said)
		}
	}
}

// shell is a shell that has not been started.
func (w *world) shell(text string) *exec.Cmd {
	c := exec.Command("/bin/sh", "-eu", "-c", text)
	c.Dir, c.Env = w.dir, w.environ()
	if bin := os.Getenv("ONCECTL_TEST_PGBIN"); bin != "" {
		c.Env[0] += ":" + bin // for psql
	}
	c.Env[0] += ":" + w.path("stubs") // last, so that what is installed comes first
	return c
}
