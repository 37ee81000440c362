package cmd_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// completions are what is typed before TAB, and the words that complete it, in
// the order in which shells show them.
var completions = []struct{ typed, want string }{
	{"oncectl ru", "run runs"},
	{"oncectl failed re", "resolve retry"},
	{"oncectl run --lo", "--lock --lock-grace --lock-id"},
	{"oncectl run --on-lock-loss ", "pause stop"},
	{"oncectl status -o ", "json prometheus table"},
	{"oncectl runs --output=", "json table"},
	{"oncectl failed list --kind ", "claim outbox run send"},
	{"oncectl status --file folder/", "folder/one folder/two"},
	{"oncectl send --json @folder/t", "@folder/two"},
	{"oncectl run --lock x -- oncec", "oncectl"},
	{"oncectl claim x -- oncec", "oncectl"},
	{"oncectl run --lock x -- oncectl folder/o", "folder/one"},
	{"oncectl completion ", "bash fish zsh"},
}

// shellHome is a home with the shell's script where the shell looks for it.
func shellHome(t *testing.T, shell, file string) string {
	home := t.TempDir()
	file = filepath.Join(home, file)
	for _, dir := range []string{filepath.Dir(file), filepath.Join(home, "folder")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := exec.Command(filepath.Join(binDir, "oncectl"), "completion", shell).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: string(script), filepath.Join(home, "folder/one"): "", filepath.Join(home, "folder/two"): ""} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// inShell runs command with keys on its standard input, and returns what it
// wrote.
func inShell(t *testing.T, home, keys string, command ...string) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "ZDOTDIR=" + home, "TERM=dumb", "INPUTRC=/dev/null", "LC_ALL=C.UTF-8",
		"PATH=" + binDir + string(os.PathListSeparator) + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(keys)
	screen, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, screen)
	}
	return string(screen)
}

func needsPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs %s", name)
		}
	}
}

// typeAll runs shell on a terminal, which script(1) makes, types each line with
// a key that inserts all words, and turns it into an echo of itself. It returns
// what each line became.
func typeAll(t *testing.T, home, all, shell string) []string {
	keys := ""
	for _, c := range completions {
		keys += c.typed + all + "\x01echo WORDS: \n" // Ctrl-A is the line's begin
	}
	screen := inShell(t, home, keys+"exit\n", "script", "-qec", shell, "/dev/null")
	var lines []string
	for line := range strings.Lines(screen) {
		if line, ok := strings.CutPrefix(strings.TrimSpace(line), "WORDS: "); ok {
			lines = append(lines, line)
		}
	}
	if len(lines) != len(completions) {
		t.Fatalf("%d lines of %d:\n%s", len(lines), len(completions), screen)
	}
	return lines
}

// checkLines compares lines with what was typed up to its last word, and the
// words.
func checkLines(t *testing.T, lines []string) {
	t.Helper()
	for i, c := range completions {
		rest, ok := strings.CutPrefix(lines[i], c.typed[:strings.LastIndex(c.typed, " ")+1])
		rest = strings.ReplaceAll(rest, "--output=", "") // bash inserts it once, zsh each time
		if got := strings.Fields(rest); !ok || !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%q became %q, want the words %s", c.typed, lines[i], c.want)
		}
	}
}

func TestCompletion_InBash_HasTheWords(t *testing.T) {
	library := "/usr/share/bash-completion/bash_completion"
	needsPrograms(t, "bash", "script")
	if _, err := os.Stat(library); err != nil {
		t.Skipf("needs bash-completion: %v", err)
	}
	home := shellHome(t, "bash", ".local/share/bash-completion/completions/oncectl")
	checkLines(t, typeAll(t, home, "\x1b*", "bash --noprofile --rcfile "+library+" -i"))
}

func TestCompletion_InZsh_HasTheWords(t *testing.T) {
	needsPrograms(t, "zsh", "script")
	home := shellHome(t, "zsh", "functions/_oncectl")
	rc := `bindkey -e; PS1='> '
fpath=(~/functions $fpath); autoload -U compinit; compinit -u -D
zle -C all-matches complete-word _generic; bindkey '^Xa' all-matches
zstyle ':completion:all-matches:*' completer _all_matches _complete
zstyle ':completion:all-matches:*' insert true
`
	if err := os.WriteFile(filepath.Join(home, ".zshrc"), []byte(rc), 0o644); err != nil {
		t.Fatal(err)
	}
	checkLines(t, typeAll(t, home, "\x18a", "zsh -d -i"))
}

func TestCompletion_InFish_HasTheWords(t *testing.T) {
	needsPrograms(t, "fish")
	home := shellHome(t, "fish", ".config/fish/completions/oncectl.fish")
	for _, c := range completions {
		var got []string
		for line := range strings.Lines(inShell(t, home, "", "fish", "-c", "complete -C '"+c.typed+"'")) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, strings.TrimPrefix(word, "--output="))
		}
		slices.Sort(got)
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%q: %q, want %s", c.typed, got, c.want)
		}
	}
}
