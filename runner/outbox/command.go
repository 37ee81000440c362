package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// Command publishes rows by a command, which gets the payload on standard
// input and tells success by its exit status.
type Command struct {
	Argv   []string
	Env    []string
	Stdout io.Writer
	Stderr io.Writer // its end is kept for the dead letter
	// Timeout bounds one command, Grace what is left of it after an interrupt.
	Timeout, Grace time.Duration
}

// afterTerm is how long a command that takes too long has after SIGTERM, and
// pipeWait how long output is waited for that a descendant holds open.
const (
	afterTerm = 5 * time.Second
	pipeWait  = time.Second
)

// Publish implements Publisher.
func (c Command) Publish(ctx context.Context, row runner.OutboxRow) runner.DeliveryResult {
	if ctx.Err() != nil {
		return runner.DeliveryResult{Outcome: runner.Failed, Interrupted: true, LastError: "interrupted before it was begun"}
	}
	tail := &tail{}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(c.Env[:len(c.Env):len(c.Env)],
		"ONCECTL_OUTBOX_ID="+strconv.FormatInt(row.ID, 10), "ONCECTL_OUTBOX_TOPIC="+row.Topic, "ONCECTL_OUTBOX_KEY="+row.Key)
	cmd.Stdin = bytes.NewReader(row.Payload)
	cmd.Stdout, cmd.Stderr = c.Stdout, io.MultiWriter(c.Stderr, tail)
	cmd.WaitDelay = pipeWait
	// Ctrl-C is for oncectl, which finishes what is in flight.
	cmd.SysProcAttr = groupOfItsOwn()
	if err := cmd.Start(); err != nil {
		return runner.DeliveryResult{Outcome: runner.Failed, Attempts: 1, LastError: fmt.Sprintf("starting the command: %v", err)}
	}
	ended := c.watch(ctx, cmd.Process.Pid)
	err := cmd.Wait()
	return c.result(cmd.ProcessState, err, ended(), tail)
}

// why a command was ended by us.
type why int

const (
	byItself why = iota
	tooLong
	interrupted
)

// watch ends the command's process group when its time is over. The function
// it returns is called after the command was waited for, and tells whether it
// was ended.
func (c Command) watch(ctx context.Context, group int) (ended func() why) {
	gone, answer := make(chan struct{}), make(chan why, 1)
	go func() {
		limit := time.NewTimer(c.Timeout)
		defer limit.Stop()
		stopped := ctx.Done()
		for {
			select {
			case <-gone:
				answer <- byItself
				return
			case <-stopped:
				stopped = nil
				limit.Reset(c.Grace)
				continue
			case <-limit.C:
			}
			answer <- endGroup(ctx, group, gone)
			return
		}
	}()
	return func() why {
		close(gone)
		return <-answer
	}
}

// endGroup asks the group to end and then ends it.
func endGroup(ctx context.Context, group int, gone <-chan struct{}) why {
	if ctx.Err() != nil {
		_ = syscall.Kill(-group, syscall.SIGKILL) // it may have ended
		return interrupted
	}
	_ = syscall.Kill(-group, syscall.SIGTERM)
	select {
	case <-gone:
	case <-time.After(afterTerm):
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	return tooLong
}

// result reads how the command ended. What ended by a signal may have done its
// work.
func (c Command) result(state *os.ProcessState, err error, ended why, tail *tail) runner.DeliveryResult {
	r := runner.DeliveryResult{Outcome: runner.Failed, Attempts: 1}
	ws, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return runner.DeliveryResult{Outcome: runner.Delivered, Attempts: 1}
	case ended == interrupted:
		r.Outcome, r.Interrupted, r.Status, r.LastError = runner.InDoubt, true, 128+int(syscall.SIGKILL), "the command was interrupted"
	case ended == tooLong:
		r.Outcome, r.Status, r.LastError = runner.InDoubt, 128+int(syscall.SIGTERM), fmt.Sprintf("the command took longer than %v", c.Timeout)
	case ok && ws.Signaled():
		r.Outcome, r.Status = runner.InDoubt, 128+int(ws.Signal())
		r.LastError = fmt.Sprintf("the command was %v", runner.Exit{Signal: ws.Signal()})
	case state.ExitCode() > 0:
		r.Status = state.ExitCode()
		r.LastError = fmt.Sprintf("the command ended with %v", runner.Exit{Code: r.Status})
	default:
		// Its output could not be passed on, say; it ended with 0.
		return runner.DeliveryResult{Outcome: runner.Delivered, Attempts: 1}
	}
	r.LastError = runner.WithTail(r.LastError, tail.b)
	return r
}

// tail keeps the end of what is written.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - runner.TailBytes; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}
