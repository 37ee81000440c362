package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/oncectl/oncectl/cmd"
)

// The pages in man/ are those that the commands make. If this fails:
// go run ./scripts/genman man
func TestPages_WhenCommandsChange_AreWrittenAnew(t *testing.T) {
	dir := filepath.Join("..", "..", "man")
	want := pages(cmd.Root())
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != text {
			t.Errorf("%s is not what 'go run ./scripts/genman man' writes (%v)", name, err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, ok := want[f.Name()]; !ok {
			t.Errorf("man/%s belongs to no command", f.Name())
		}
	}
}
