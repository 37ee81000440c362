package process_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/process"
)

// planEnv makes the test binary a driver: a process that runs one job as
// oncectl does. It has to be a process of its own, since it is killed, stopped
// and given orphans to reap.
const planEnv = "PROCESS_TEST_PLAN"

func TestMain(m *testing.M) {
	process.GuardMain()
	if text, ok := os.LookupEnv(planEnv); ok {
		os.Exit(drive(text))
	}
	if signal.Ignored(syscall.SIGHUP) {
		// Under nohup: what tests start is to have the default all the same.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// plan is what a driver is to do.
type plan struct {
	Argv    []string
	Env     []string
	Lock    string // a file to lock and to hand to the guard
	QuietOK bool
	Options process.Options
	Lease   time.Duration // of the lock, from the start; 0: it has none
	Control int           // the descriptor to report on and to take requests from
	Runs    int           // how often to run the job, if more than once
	Threads bool          // end every idle thread once the job runs
}

// driver is the process that follows a plan.
type driver struct {
	plan
	control *os.File
	signals <-chan os.Signal
	starter *process.Starter
	child   runner.Child
	lease   atomic.Pointer[time.Time]
}

// failed is the status of a driver that could not do its work.
const failed = 125

func drive(text string) int {
	d := &driver{}
	if err := json.Unmarshal([]byte(text), &d.plan); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return failed
	}
	syscall.CloseOnExec(d.Control)
	d.control = os.NewFile(uintptr(d.Control), "control")
	d.signals, _ = process.Signals()
	requests := make(chan string)
	go func() {
		for lines := bufio.NewScanner(d.control); lines.Scan(); {
			requests <- lines.Text()
		}
	}()
	for range max(0, d.Runs-1) {
		if status := d.run(nil); status != 7 {
			return status
		}
	}
	return d.run(requests)
}

func (d *driver) say(format string, args ...any) { fmt.Fprintf(d.control, format+"\n", args...) }

// run runs the job once and returns its status.
func (d *driver) run(requests <-chan string) int {
	d.starter = process.Prepare(d.Options)
	c := runner.Command{Argv: d.Argv, Env: d.Env, QuietOK: d.QuietOK}
	if d.Lease != 0 {
		d.leaseFor(d.Lease)
		c.Lease = func() time.Time { return *d.lease.Load() }
	}
	var err error
	if d.Lock != "" {
		c.LockFile, err = locked(d.Lock)
	}
	if err == nil {
		d.child, err = d.starter.Start(context.Background(), c)
	}
	if err != nil {
		d.say("error %v", err)
		return failed
	}
	if d.Threads {
		endThreads()
	}
	d.say("started")
	d.watch(requests)
	exit := d.child.Exit()
	d.say("tail %q", d.child.Tail())
	if err := d.child.Close(!exit.OK()); err != nil {
		d.say("error %v", err)
		return failed
	}
	if exit.Signal == syscall.SIGINT && d.starter.SharesTerminal() {
		process.DieOf(exit.Signal)
	}
	return exit.Status()
}

func (d *driver) leaseFor(left time.Duration) {
	until := time.Now().Add(left)
	d.lease.Store(&until)
}

func (d *driver) watch(requests <-chan string) {
	for {
		select {
		case <-d.child.Done():
			return
		case sig := <-d.signals:
			if err := d.child.Signal(sig); err != nil {
				d.say("error %v", err)
			}
		case <-d.child.Halted():
			d.say("halted")
		case r := <-requests:
			d.say("%s %v", r, d.request(r))
		}
	}
}

// request does one of Pausable's and Guarded's requests.
func (d *driver) request(r string) error {
	what, file, _ := strings.Cut(r, " ")
	switch what {
	case "pause":
		return d.child.Pause()
	case "continue":
		return d.child.Continue()
	case "kill":
		return d.child.Kill()
	case "lease":
		left, err := time.ParseDuration(file)
		d.leaseFor(left)
		return err
	case "hold":
		f, err := locked(file)
		if err != nil {
			return err
		}
		return d.child.Hold(f)
	case "hold-closed":
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		f.Close()
		return d.child.Hold(f)
	}
	return fmt.Errorf("no such request: %q", r)
}

// locked locks a file as a store does, keeps that descriptor, and returns a
// duplicate for the guard.
func locked(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, err
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	return os.NewFile(uintptr(dup), name), err
}

// endThreads ends the threads that are idle now, the one that made the guard
// among them: a goroutine that ends while it is locked to its thread takes the
// thread along, and here all of these need a thread at the same time.
func endThreads() {
	const n = 100
	var here, gone sync.WaitGroup
	here.Add(n)
	for range n {
		gone.Go(func() {
			runtime.LockOSThread()
			here.Done()
			here.Wait()
			time.Sleep(time.Millisecond) // gives its processor, not its thread, to the next
		})
	}
	gone.Wait()
}
