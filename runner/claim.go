package runner

import (
	"context"
	"time"
)

// Outcome of a claimed event, as stored in processed_events.outcome. Empty
// means none yet.
type Outcome string

const (
	Delivered Outcome = "delivered"
	Failed    Outcome = "failed"   // surely not delivered
	InDoubt   Outcome = "in_doubt" // may have been delivered
)

// TakeOver says which existing claims a new one may replace. The zero value
// replaces none.
type TakeOver uint8

const (
	// TakeExpired: unfinished ones whose expires_at has passed.
	TakeExpired TakeOver = 1 << iota
	// TakeFailed: those whose outcome is Failed.
	TakeFailed
	// TakeInDoubt: those whose outcome is InDoubt.
	TakeInDoubt
	// TakeBareOfRun: bare ones (no expires_at, no outcome) of the same run.
	TakeBareOfRun
)

// ClaimRequest claims ids, all with the same attributes.
type ClaimRequest struct {
	IDs   []EventID
	Token Token  // chosen by the caller: makes a repeated request idempotent
	Owner string // host and pid, for people
	// Run is the run that claims, nil outside one. With it the claim is fenced.
	Run *Run
	// Expires makes the claims unfinished until settled; 0 is a bare claim.
	Expires time.Duration
	// PayloadHashes are stored with the claims (lower-case hex SHA-256): none,
	// or one for each of IDs, of which "" is none. Where both have one, a claim
	// with another hash is never taken over; a take-over without one keeps what
	// was there.
	PayloadHashes []string
	// Targets are stored with the claims that are sends: none, or the URL host
	// for each of IDs. They name the dead letter of a sender that died.
	Targets []string
	Take    TakeOver
}

// Settlement is the outcome of one claimed event.
type Settlement struct {
	ID      EventID
	Outcome Outcome
	// DeadLetter is saved with the outcome in one transaction; nil for none.
	DeadLetter *DeadLetter
}

// SettleRequest records outcomes. Only claims that the caller owns change:
// they have Token, if it is set, and are Run's, if it is set (both, if both
// are). With neither, whoever asks owns them all: a person, outside a run.
type SettleRequest struct {
	Settlements []Settlement
	Token       Token
	Run         *Run
}

// SettleAnswer tells what became of one settlement.
type SettleAnswer int

const (
	Settled SettleAnswer = iota
	// AlreadySettled: it had this outcome before.
	AlreadySettled
	// NotOwner: somebody else owns the claim now, or it has another outcome.
	// InDoubt is none: its owner may replace it, however late.
	NotOwner
	// NotClaimed: there is no such claim.
	NotClaimed
)

// GiveBackRequest deletes claims, so that their events can be won again. Only
// the caller's own claims go, as for SettleRequest; delivered ones never
// (AlreadySettled).
type GiveBackRequest struct {
	IDs   []EventID
	Token Token
	Run   *Run
}

// Claimer decides who wins. All three methods fail with ErrUnavailable,
// ErrRefused, ErrUndecided (another program's open transaction holds an id for
// more than ClaimPatience) or, in a run, ErrFenced; then nothing was written
// or, after ErrUnavailable and ErrUndecided, the caller may repeat the same
// request with the same token.
type Claimer interface {
	// Claim tells for each id, in order, whether the caller is its winner. An
	// id that occurs twice is won at its first place only. A claim that has
	// req.Token already and no outcome is won again. What is won, again or
	// taken over, is as if new: claimed_at and all else are this request's.
	// ErrInvalid if PayloadHashes are neither none nor one for each id.
	Claim(ctx context.Context, req ClaimRequest) (won []bool, err error)
	// Settle records outcomes, in one transaction, in order.
	Settle(ctx context.Context, req SettleRequest) ([]SettleAnswer, error)
	// GiveBack tells for each id what became of it; Settled means given back.
	GiveBack(ctx context.Context, req GiveBackRequest) ([]SettleAnswer, error)
}

// ClaimPatience bounds how long a claim waits behind another program's open
// transaction before it is undecided.
const ClaimPatience = 5 * time.Second

// Turner settles some claims and makes others in one transaction and one round
// trip, so that a batch never has more claims unfinished than requests in
// flight. Its errors are Claimer's.
type Turner interface {
	Turn(ctx context.Context, settle SettleRequest, claim ClaimRequest) (answers []SettleAnswer, won []bool, err error)
}

// Sweeper finds sends whose sender died.
type Sweeper interface {
	// Sweep makes a dead letter, in doubt, of each unfinished send (a claim
	// with a target) whose expires_at has passed, and tells how many.
	Sweep(ctx context.Context) (int, error)
}

// Renewer keeps unfinished claims alive.
type Renewer interface {
	// Renew sets expires_at to the store's now plus d for the unfinished
	// claims among ids that have token, expired ones too; it returns how many
	// it found.
	Renew(ctx context.Context, ids []EventID, token Token, d time.Duration) (int, error)
}

// Claim is a row of processed_events.
type Claim struct {
	ID          EventID
	ClaimedAt   time.Time
	Token       Token
	RunID       int64 // 0 outside a run
	Owner       string
	PayloadHash string
	Target      string    // the URL host of a send; empty for other claims
	ExpiresAt   time.Time // zero: bare
	Outcome     Outcome   // empty: none
	FinishedAt  time.Time
	// Expired says that ExpiresAt had passed by the store's clock when the row
	// was read.
	Expired bool
}

// State is what a person calls the claim: claimed, unfinished, in_doubt,
// delivered or failed.
func (c Claim) State() string {
	switch {
	case c.Outcome != "":
		return string(c.Outcome)
	case c.ExpiresAt.IsZero():
		return "claimed"
	case c.Expired:
		return string(InDoubt)
	}
	return "unfinished"
}

// ClaimFilter selects claims; zero fields select all.
type ClaimFilter struct {
	InDoubt bool
	Prefix  string
	// Since keeps claims made at most this long before the store's now.
	Since time.Duration
}

// ClaimReader shows claims. Errors: ErrUnavailable, ErrRefused.
type ClaimReader interface {
	// Lookup returns the claims that exist among ids, in no order.
	Lookup(ctx context.Context, ids []EventID) ([]Claim, error)
	// EachClaim calls f for each claim, oldest first, without holding them all
	// in memory, and stops at f's first error, which it returns.
	EachClaim(ctx context.Context, filter ClaimFilter, f func(Claim) error) error
}
