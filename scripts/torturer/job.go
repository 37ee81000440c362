//go:build linux

package main

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stampEvery is how often a job leaves a stamp.
const stampEvery = 10 * time.Millisecond

type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

// jobMain is the job of a lock. It appends a stamp to the lock's file when it
// begins, again and again while it goes on, and when it ends; the kernel puts
// the appended lines in order. Meanwhile it claims events, and runs a command.
func jobMain(args []string) int {
	fs := flag.NewFlagSet("job", flag.ExitOnError)
	file := fs.String("file", "", "the lock's file")
	id := fs.String("id", "", "the job's name in it")
	d := fs.Duration("for", 0, "how long it takes")
	stop := fs.String("stop", "", "it ends when this file is there")
	won := fs.String("won", "", "file for the claims that it won")
	status := fs.Int("status", 0, "exit status")
	var claims words
	fs.Var(&claims, "claim", "event to claim")
	_ = fs.Parse(args) // it exits
	f, err := os.OpenFile(*file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9
	}
	run, key := os.Getenv("ONCECTL_RUN_ID"), os.Getenv("ONCECTL_KEY")
	stamp := func(kind byte) {
		_, err = fmt.Fprintf(f, "%s %c %d %d %s %s\n", *id, kind, boottime(), time.Now().UnixMicro(), orDash(run), orDash(key))
	}
	stamp(begun)
	var work sync.WaitGroup
	if len(claims) > 0 {
		work.Go(func() { claimAll(claims, *won) })
	}
	if fs.NArg() > 0 {
		work.Go(func() { _ = exec.Command(fs.Arg(0), fs.Args()[1:]...).Run() }) // what came of it is in the tables
	}
	worked := make(chan struct{})
	go func() { work.Wait(); close(worked) }()
	for end, n := time.Now().Add(*d), 0; ; n++ {
		if over(*stop, n) || !time.Now().Before(end) {
			select {
			case <-worked:
				stamp(done)
				if err != nil {
					return 9
				}
				return *status
			default:
			}
		}
		time.Sleep(stampEvery)
		stamp(alive)
	}
}

// over looks now and then whether the file is there.
func over(file string, n int) bool {
	if n%10 != 0 {
		return false
	}
	_, err := os.Stat(file)
	return err == nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// boottime is a clock that all processes of the machine share and nobody sets.
func boottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// claimAll claims events at the broker, and writes down those it won.
func claimAll(ids []string, file string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	for _, id := range ids {
		if claimAt(os.Getenv("ONCECTL_SOCKET"), id) {
			fmt.Fprintln(f, id)
		}
	}
}

func claimAt(socket, id string) bool {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /claim/%s HTTP/1.1\r\nHost: oncectl\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", url.PathEscape(id))
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && strings.Contains(line, " 200 ")
}
