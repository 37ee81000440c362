package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// ClaimRenewer is what a command under a claim needs of a store.
type ClaimRenewer interface {
	Claimer
	Renewer
}

// LiveExpiry is how long the claim of a live command or sender lasts without
// being renewed. A crash shows as in doubt after that.
const LiveExpiry = 30 * time.Second

// EventJob is a command that only the winner of an event runs.
type EventJob struct {
	ID      EventID
	Argv    []string
	Env     []string
	Owner   string
	Expires time.Duration // 0: LiveExpiry, and nothing is taken over
	// ReleaseOnFailure gives the claim back when the command fails.
	ReleaseOnFailure bool
	KeepArgs         bool
	KillAfter        time.Duration
}

// EventRunner runs commands under claims.
type EventRunner struct {
	Claims  ClaimRenewer
	Jobs    Starter
	Signals <-chan os.Signal
	Log     *slog.Logger
}

// EventResult is how an EventJob ended.
type EventResult struct {
	Won       bool
	Exit      Exit
	RecordErr error // the outcome could not be recorded
}

// Run claims the event and, if it won, runs the command, keeping the claim
// alive. The error says why that was not possible; how the command ended is in
// the result.
func (r *EventRunner) Run(ctx context.Context, job EventJob) (EventResult, error) {
	token := NewToken()
	req := ClaimRequest{IDs: []EventID{job.ID}, Token: token, Owner: job.Owner, Expires: LiveExpiry}
	if job.Expires > 0 {
		req.Expires, req.Take = job.Expires, TakeExpired
	}
	won, err := r.Claims.Claim(ctx, req)
	if err != nil {
		return EventResult{}, fmt.Errorf("claiming %q: %w", job.ID, err)
	}
	if !won[0] {
		return EventResult{}, nil
	}
	child, err := r.Jobs.Start(ctx, Command{Argv: job.Argv, Env: job.Env})
	if err != nil {
		// Nothing was done, so that the event must not stay claimed.
		return EventResult{Won: true, RecordErr: r.giveBack(ctx, job.ID, token)}, err
	}
	e := r.watch(ctx, job, child, req)
	res := EventResult{Won: true, Exit: e.child.Exit()}
	if err := child.Close(!res.Exit.OK()); err != nil {
		r.Log.Warn("closing the command", "error", err)
	}
	res.RecordErr = r.settle(ctx, job, token, res.Exit, child.Tail())
	return res, nil
}

// watch returns when the command has ended, renewing its claim meanwhile.
func (r *EventRunner) watch(ctx context.Context, job EventJob, child Child, req ClaimRequest) *ending {
	e := &ending{child: child, killAfter: job.KillAfter, log: r.Log}
	renew := time.NewTicker(req.Expires / 3)
	defer renew.Stop()
	stopped := false
	for {
		select {
		case <-child.Done():
			if stopped {
				e.killJob()
			}
			return e
		case sig := <-r.Signals:
			stopped = e.forward(sig) || stopped
		case <-e.kill:
			e.killJob()
		case <-child.Halted():
			// Silence does not free a claim within its expiry; a late renewal
			// finds out whether it did.
			r.renew(ctx, req)
			if err := child.Continue(); err != nil {
				r.Log.Error("continuing the command", "error", err)
			}
		case <-renew.C:
			r.renew(ctx, req)
		}
	}
}

func (r *EventRunner) renew(ctx context.Context, req ClaimRequest) {
	ctx, cancel := context.WithTimeout(ctx, req.Expires/3)
	defer cancel()
	n, err := r.Claims.Renew(ctx, req.IDs, req.Token, req.Expires)
	switch {
	case err != nil:
		r.Log.Warn("renewing the claim", "event", req.IDs[0], "error", err)
	case n == 0:
		r.Log.Warn("the claim is no longer this command's", "event", req.IDs[0])
	}
}

func (r *EventRunner) giveBack(ctx context.Context, id EventID, token Token) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	_, err := r.Claims.GiveBack(ctx, GiveBackRequest{IDs: []EventID{id}, Token: token})
	if err != nil {
		return fmt.Errorf("giving back %q: %w", id, err)
	}
	return nil
}

// settle records how the command ended.
func (r *EventRunner) settle(ctx context.Context, job EventJob, token Token, exit Exit, tail []byte) error {
	if !exit.OK() && job.ReleaseOnFailure {
		return r.giveBack(ctx, job.ID, token)
	}
	s := Settlement{ID: job.ID, Outcome: Delivered}
	if !exit.OK() {
		s.Outcome = Failed
		s.DeadLetter = commandLetter(KindClaim, string(job.ID), job.Argv, job.KeepArgs)
		s.DeadLetter.EventID = job.ID
		s.DeadLetter.LastError = WithTail("the command ended with "+exit.String(), tail)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	answers, err := r.Claims.Settle(ctx, SettleRequest{Settlements: []Settlement{s}, Token: token})
	switch {
	case err != nil:
		return fmt.Errorf("recording the outcome of %q: %w", job.ID, err)
	case answers[0] != Settled && answers[0] != AlreadySettled:
		return fmt.Errorf("recording the outcome of %q: %w", job.ID, errNotOwner)
	}
	return nil
}

var errNotOwner = errors.New("the claim expired meanwhile and somebody else has it now")

// commandLetter is the dead letter of a command, without its error.
func commandLetter(kind Kind, name string, argv []string, keepArgs bool) *DeadLetter {
	d := &DeadLetter{Kind: kind, Name: name, PayloadHash: HashCommand(argv), Attempts: 1, Certainty: Failed}
	if keepArgs {
		d.Request, _ = json.Marshal(map[string]any{"argv": argv}) // strings always marshal
	}
	return d
}
