package cmd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oncectl/oncectl/runner"
)

func newCompletionCmd(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print what a shell needs to complete oncectl's commands and flags",
		Long: `completion prints a script for the shell that is named. Packages bring it along;
elsewhere write it to where the shell looks for it:

  bash   ~/.local/share/bash-completion/completions/oncectl (needs bash-completion)
  zsh    _oncectl in a folder of $fpath
  fish   ~/.config/fish/completions/oncectl.fish`,
		Example: `  mkdir -p ~/.config/fish/completions
  oncectl completion fish >~/.config/fish/completions/oncectl.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("which shell? bash, zsh or fish")
			}
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(env.Out, true)
			case "zsh":
				return root.GenZshCompletion(env.Out)
			case "fish":
				return root.GenFishCompletion(env.Out, true)
			}
			return usagef("the shell is bash, zsh or fish, not %q", args[0])
		},
	}
}

// asksForWords reports whether a shell's script asks for the words that can
// come next. No other call pays for knowing them.
func asksForWords(env *Env) bool {
	return len(env.Args) > 0 && (env.Args[0] == cobra.ShellCompRequestCmd || env.Args[0] == cobra.ShellCompNoDescRequestCmd)
}

// fixedValues are the flags with few values, by name.
var fixedValues = map[string][]string{
	"on-lock-loss": {string(runner.LossPause), string(runner.LossStop)},
	"kind":         {string(runner.KindRun), string(runner.KindClaim), string(runner.KindSend), string(runner.KindOutbox)},
	"dialect":      {"postgres", "sqlite"},
	"request":      {"POST", "PUT", "PATCH", "DELETE", "GET"},
}

// atFiles are the flags whose value can be @FILE.
var atFiles = []string{"data", "json", "header"}

// addWords tells cobra the values of flags and the words of commands. What is
// not told here, a name, a number, a time, is no file: nothing is offered.
func addWords(root *cobra.Command, env *Env) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	addFlagWords(root, root.PersistentFlags())
	each(root, func(cmd *cobra.Command) {
		addFlagWords(cmd, cmd.LocalNonPersistentFlags())
		if strings.Contains(cmd.Use, "COMMAND") {
			cmd.ValidArgsFunction = commandWords(env, cmd.Annotations[annotationRuns] == "always")
		}
	})
}

func addFlagWords(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		words := flagWords(f)
		_, f.Usage = pflag.UnquoteUsage(f) // what shells show beside it
		if words != nil {
			// It fails for a flag that is not there, or has words already.
			if err := cmd.RegisterFlagCompletionFunc(f.Name, words); err != nil {
				panic(err)
			}
		}
	})
}

// flagWords is what completes the value of f; nil for nothing.
func flagWords(f *pflag.Flag) cobra.CompletionFunc {
	if v, ok := f.Value.(formatValue); ok {
		var names []string
		for _, format := range v.all {
			names = append(names, string(format))
		}
		return oneOf(names)
	}
	if f.Name == "outcome" {
		var names []string
		for _, o := range runOutcomes {
			names = append(names, string(o))
		}
		return oneOf(names)
	}
	if values := fixedValues[f.Name]; values != nil {
		return oneOf(values)
	}
	if slices.Contains(atFiles, f.Name) {
		return atFileWords
	}
	if name, _ := pflag.UnquoteUsage(f); name == "FILE" {
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	}
	return nil
}

func oneOf(values []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// atFileWords completes @FILE, which no shell takes for a file.
func atFileWords(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	path, ok := strings.CutPrefix(word, "@")
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Join(".", dir))
	if filepath.IsAbs(dir) {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	directive := cobra.ShellCompDirectiveNoFileComp
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || (base == "" && strings.HasPrefix(name, ".")) {
			continue
		}
		if e.IsDir() {
			name, directive = name+"/", directive|cobra.ShellCompDirectiveNoSpace
		}
		words = append(words, "@"+dir+name)
	}
	return words, directive
}

// commandWords completes COMMAND [ARG…], which begins with the first word
// (first) or after "--": programs on the PATH, then files.
func commandWords(env *Env, first bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := len(args) // words of the command
		if !first {
			// Not ArgsLenAtDash: cobra adds a "--" of its own.
			typed := env.Args[:len(env.Args)-1]
			dash := slices.Index(typed, "--")
			if dash < 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			before = len(typed) - dash - 1
		}
		if before > 0 || strings.Contains(word, "/") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return programs(env.Getenv("PATH"), word), cobra.ShellCompDirectiveDefault
	}
}

// programs are the names on path that begin with prefix.
func programs(path, prefix string) []string {
	var names []string
	for _, dir := range filepath.SplitList(path) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), prefix) {
				continue
			}
			if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
