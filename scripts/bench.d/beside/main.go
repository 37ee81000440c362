// Command beside times commands that take turns, so that what else the machine
// does meets all of them alike. It prints one line for each: the median, the
// least and the 99th percentile in ms, and the most memory in KiB.
//
//	beside [-runs N] [-warmup N] [NAME=VALUE…] COMMAND [ARG…] [--- …]
//
// {} in an argument becomes an id that no other run has. A command that does not
// end 0 ends it all, since what fails may be quick.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	runs := flag.Int("runs", 50, "times that each command is run")
	warmup := flag.Int("warmup", 2, "times before those that do not count")
	flag.Parse()
	if err := turns(*runs, *warmup, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "beside:", err)
		os.Exit(1)
	}
}

type command struct {
	path  string
	argv  []string
	env   []string
	spent []time.Duration
	most  int64 // KiB
}

func turns(runs, warmup int, args []string) error {
	var commands []*command
	for len(args) > 0 {
		end := slices.Index(args, "---")
		if end < 0 {
			end = len(args)
		}
		c, err := newCommand(args[:end])
		if err != nil {
			return err
		}
		commands = append(commands, c)
		args = args[min(end+1, len(args)):]
	}
	if len(commands) == 0 || runs < 1 {
		return errors.New("nothing to run")
	}
	runtime.LockOSThread()
	for i := range warmup + runs {
		for j := range commands {
			// Whoever came second comes first the next time.
			c := commands[(i+j)%len(commands)]
			if err := c.run(i >= warmup); err != nil {
				return fmt.Errorf("%s: %w", strings.Join(c.argv, " "), err)
			}
		}
	}
	for _, c := range commands {
		slices.Sort(c.spent)
		fmt.Printf("%.3f %.3f %.3f %d\n", ms(median(c.spent)), ms(c.spent[0]), ms(c.spent[(len(c.spent)*99-1)/100]), c.most)
	}
	return nil
}

func newCommand(words []string) (*command, error) {
	c := &command{env: os.Environ()}
	for len(words) > 0 && strings.Contains(words[0], "=") {
		c.env, words = append(c.env, words[0]), words[1:]
	}
	if len(words) == 0 {
		return nil, errors.New("a command is missing")
	}
	path, err := exec.LookPath(words[0])
	c.path, c.argv = path, words
	return c, err
}

func (c *command) run(counts bool) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	argv, id := slices.Clone(c.argv), fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "{}", id)
	}
	// Nothing is copied and no goroutine waits beside.
	attr := &syscall.ProcAttr{Env: c.env, Files: []uintptr{null.Fd(), null.Fd(), 2}}
	var status syscall.WaitStatus
	var usage syscall.Rusage
	began := time.Now()
	pid, err := syscall.ForkExec(c.path, argv, attr)
	if err != nil {
		return err
	}
	for {
		if _, err = syscall.Wait4(pid, &status, 0, &usage); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	spent := time.Since(began)
	if err != nil {
		return err
	}
	if status.ExitStatus() != 0 {
		return fmt.Errorf("exit status %d", status.ExitStatus())
	}
	if counts {
		c.spent, c.most = append(c.spent, spent), max(c.most, usage.Maxrss)
	}
	return nil
}

func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
