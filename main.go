// Oncectl runs cron jobs once and sends messages once: it lets a database
// decide who wins, before any side effect.
package main

import (
	"os"

	"github.com/oncectl/oncectl/cmd"
)

func main() {
	os.Exit(int(cmd.Main()))
}
