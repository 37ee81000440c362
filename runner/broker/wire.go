package broker

import (
	"fmt"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// duration is a time.Duration as people write it.
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return err
	}
	if v < 0 {
		return fmt.Errorf("duration %v is negative", v)
	}
	*d = duration(v)
	return nil
}

// lifetime is a duration that is not zero: a claim whose time is reckoned to be
// none must not become one that never ends.
type lifetime duration

func (l lifetime) MarshalText() ([]byte, error) { return duration(l).MarshalText() }

func (l *lifetime) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return err
	}
	if v <= 0 {
		return fmt.Errorf("duration %v is not more than zero", v)
	}
	*l = lifetime(v)
	return nil
}

type claimBody struct {
	IDs           []runner.EventID `json:"ids"`
	Token         runner.Token     `json:"token,omitempty"`
	Owner         string           `json:"owner,omitempty"`
	Expires       lifetime         `json:"expires,omitzero"`
	PayloadHashes []string         `json:"payload_hashes,omitempty"`
	Targets       []string         `json:"targets,omitempty"`
	// Take is nil where the caller leaves it to the server.
	Take []string `json:"take"`
}

type claimAnswer struct {
	Won   []bool       `json:"won"`
	Token runner.Token `json:"token"`
}

// oneClaimAnswer answers POST /claim/ID.
type oneClaimAnswer struct {
	Won   bool         `json:"won"`
	Token runner.Token `json:"token"`
}

// idsBody is the body of /done, /release, /lookup and /renew, each of which
// takes a part of it.
type idsBody struct {
	IDs     []runner.EventID `json:"ids"`
	Token   runner.Token     `json:"token,omitempty"`
	Outcome runner.Outcome   `json:"outcome,omitempty"`
	Expires lifetime         `json:"expires,omitzero"`
}

type settleBody struct {
	Settlements []settlement `json:"settlements"`
	Token       runner.Token `json:"token,omitempty"`
}

type settlement struct {
	ID         runner.EventID `json:"id"`
	Outcome    runner.Outcome `json:"outcome"`
	DeadLetter *deadLetter    `json:"dead_letter,omitempty"`
}

// deadLetter is what a settlement says of one; the rest is the store's.
// Payload and Request are base64; null is none, which "" is not.
type deadLetter struct {
	Kind        runner.Kind    `json:"kind"`
	Name        string         `json:"name"`
	EventID     runner.EventID `json:"event_id,omitempty"`
	PayloadHash string         `json:"payload_hash,omitempty"`
	Payload     []byte         `json:"payload"`
	Request     []byte         `json:"request"`
	LastError   string         `json:"last_error"`
	Attempts    int            `json:"attempts"`
	Certainty   runner.Outcome `json:"certainty"`
	RetryAt     time.Time      `json:"retry_at,omitzero"`
}

type settleAnswer struct {
	Answers []string `json:"answers"`
}

type renewAnswer struct {
	Renewed int `json:"renewed"`
}

type turnBody struct {
	Settle settleBody `json:"settle"`
	Claim  claimBody  `json:"claim"`
}

type turnAnswer struct {
	Answers []string     `json:"answers"`
	Won     []bool       `json:"won"`
	Token   runner.Token `json:"token"`
}

type lookupAnswer struct {
	Claims []claim `json:"claims"`
}

type claim struct {
	ID          runner.EventID `json:"id"`
	State       string         `json:"state"`
	ClaimedAt   time.Time      `json:"claimed_at"`
	Token       runner.Token   `json:"token,omitempty"`
	RunID       int64          `json:"run_id,omitempty"`
	Owner       string         `json:"owner,omitempty"`
	PayloadHash string         `json:"payload_hash,omitempty"`
	Target      string         `json:"target,omitempty"`
	ExpiresAt   time.Time      `json:"expires_at,omitzero"`
	Outcome     runner.Outcome `json:"outcome,omitempty"`
	FinishedAt  time.Time      `json:"finished_at,omitzero"`
	Expired     bool           `json:"expired,omitempty"`
}

// runAnswer shows the run without its fencing token.
type runAnswer struct {
	RunID       int64     `json:"run_id"`
	Lock        string    `json:"lock"`
	LockKey     int64     `json:"lock_key"`
	Key         string    `json:"key,omitempty"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	ScheduledAt time.Time `json:"scheduled_at,omitzero"`
	StartedAt   time.Time `json:"started_at"`
}

type slotBody struct {
	Host     string    `json:"host"`
	Patience *duration `json:"patience,omitempty"`
}

type slotAnswer struct {
	Slot      string `json:"slot"`
	Delivered uint64 `json:"delivered"`
}

type feedbackBody struct {
	Answer string `json:"answer"`
	// RetryAfter is nil where the host did not say.
	RetryAfter *duration `json:"retry_after,omitempty"`
}

type feedbackAnswer struct {
	Delivered uint64 `json:"delivered"`
}
