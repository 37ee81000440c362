// Genman writes the manual pages from the commands themselves, so that pages
// and program cannot drift apart: go run ./scripts/genman man
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/oncectl/oncectl/cmd"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genman DIR")
		os.Exit(2)
	}
	for name, page := range pages(cmd.Root()) {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), []byte(page), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "genman:", err)
			os.Exit(1)
		}
	}
}
