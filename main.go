// Oncectl runs cron jobs once and sends messages once: it lets a database
// decide who wins, before any side effect.
package main

import (
	"os"

	"github.com/oncectl/oncectl/cmd"
	"github.com/oncectl/oncectl/runner/process"
)

func main() {
	process.GuardMain() // does not return in a guard
	os.Exit(int(cmd.Main()))
}
