package cmd_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/cmd"
)

// example is a block of README.md, or the examples of a manual page, each of
// whose commands is a step.
type example struct {
	from   string // where it is
	lang   string // sh, crontab or sql
	steps  []string
	manual bool   // from a manual page
	above  string // what crontabs above it have set: README.md shows one crontab
}

func (e example) has(text string) bool { return strings.Contains(strings.Join(e.steps, "\n"), text) }

// dataBlocks are the languages of blocks in which nothing is to be run.
var dataBlocks = []string{"yaml", "json", "ini", "systemd", "dockerfile", "js", "text"}

// readmeExamples reads the blocks of README.md. One that does not say what it is
// fails the test, as it would not be run.
func readmeExamples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []example
	var e *example
	above := ""
	for i, line := range strings.Split(string(text), "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case !isFence && e != nil:
			e.steps[0] += line + "\n"
		case isFence && e == nil:
			e = &example{from: fmt.Sprintf("README.md:%d", i+2), lang: fence, steps: []string{""}, above: above}
		case isFence:
			above += settings(*e)
			if !slices.Contains(dataBlocks, e.lang) {
				all = append(all, *e)
			}
			if !slices.Contains(append([]string{"sh", "crontab", "sql"}, dataBlocks...), e.lang) {
				t.Errorf("%s: %q is no language that says whether the block is to be run", e.from, e.lang)
			}
			e = nil
		}
	}
	if len(all) < 10 {
		t.Fatalf("README.md has but %d blocks to run", len(all))
	}
	return all
}

// settings are the environment settings of a crontab.
func settings(e example) (set string) {
	if e.lang != "crontab" {
		return ""
	}
	for _, line := range strings.Split(e.steps[0], "\n") {
		if setting.MatchString(line) {
			set += line + "\n"
		}
	}
	return set
}

// manualExamples are the examples of all commands, of which the manual pages are
// made, with the commands in their descriptions.
func manualExamples() (all []example) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		e := example{from: strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1", lang: "sh", manual: true, steps: commandsIn(c.Example)}
		for _, para := range strings.Split(c.Long, "\n\n") {
			if indentedCommand.MatchString(para) {
				e.steps = append(e.steps, para)
			}
		}
		if len(e.steps) > 0 {
			all = append(all, e)
		}
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(cmd.Root())
	return all
}

// commandsIn splits examples into commands: one a line, but where a line ends
// with a backslash.
func commandsIn(text string) (commands []string) {
	whole := ""
	for _, line := range strings.Split(text, "\n") {
		whole += strings.TrimSpace(line)
		if strings.HasSuffix(whole, "\\") {
			whole += "\n"
			continue
		}
		if whole != "" {
			commands = append(commands, whole)
		}
		whole = ""
	}
	return commands
}

var (
	// indentedCommand is a paragraph that shows a command.
	indentedCommand = regexp.MustCompile(`^  (\S+=\S+; )?oncectl `)

	setting  = regexp.MustCompile(`^\w+ *=`)
	schedule = regexp.MustCompile(`^(@\w+|(?:[\d*][-*/,\w]*[ \t]+){3}[\w*][-*/,\w]*[ \t]+[\w*][-*/,\w]*)[ \t]+(.*)$`)
)

// cronLine is one line of a crontab: a setting, or a command with its input.
type cronLine struct{ env, command, stdin string }

// cronLines reads a step as cron reads a crontab of a user.
func (w *world) cronLines(step string) (lines []cronLine) {
	for _, line := range strings.Split(w.rewritten(w.above+step), "\n") {
		line = strings.TrimSpace(line)
		switch found := schedule.FindStringSubmatch(line); {
		case line == "" || line[0] == '#':
		case found != nil:
			command, stdin := atPercent(found[2])
			lines = append(lines, cronLine{command: command, stdin: stdin})
		case setting.MatchString(line):
			name, value, _ := strings.Cut(line, "=")
			lines = append(lines, cronLine{env: strings.TrimSpace(name) + "=" + strings.Trim(strings.TrimSpace(value), `"'`)})
		default:
			w.t.Errorf("no line of a crontab: %q", line)
		}
	}
	return lines
}

// atPercent ends a command at the first %, and makes new lines of those in its
// input. With a backslash before it, % is itself.
func atPercent(s string) (command, stdin string) {
	s = strings.ReplaceAll(s, `\%`, "\x00")
	command, stdin, found := strings.Cut(s, "%")
	if found {
		stdin = strings.ReplaceAll(stdin, "%", "\n") + "\n"
	}
	back := strings.NewReplacer("\x00", "%")
	return back.Replace(command), back.Replace(stdin)
}
