package cmd

import "testing"

func TestCommands_AreNamedAsTheyAre(t *testing.T) {
	for _, c := range commands {
		if got := c.make(&Env{Getenv: func(string) string { return "" }}, &storeOptions{}).Name(); got != c.name {
			t.Errorf("%q makes the command %q", c.name, got)
		}
	}
}
