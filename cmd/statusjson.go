package cmd

import (
	"time"

	"github.com/oncectl/oncectl/runner"
)

// statusRecord is the status in JSON. The names are part of the promise.
type statusRecord struct {
	At           time.Time     `json:"at"`
	Locks        []lockRecord  `json:"locks"`
	DeadLetters  lettersRecord `json:"dead_letters"`
	InDoubt      int           `json:"in_doubt"`
	InDoubtOpen  int           `json:"in_doubt_open"`
	Expired      int           `json:"expired"`
	ExpiredSends int           `json:"expired_sends"`
	Unfinished   int           `json:"unfinished"`
	Outbox       backlogRecord `json:"outbox"`
	Needs        []need        `json:"needs"`
}

type lockRecord struct {
	Lock          string     `json:"lock"`
	LockKey       int64      `json:"lock_key"`
	Held          bool       `json:"held"`
	Holder        *string    `json:"holder"`
	Since         *time.Time `json:"since"`
	LastRun       runRecord  `json:"last_run"`
	LastSuccessAt *time.Time `json:"last_success_at"`
}

type lettersRecord struct {
	Unresolved int                 `json:"unresolved"`
	OldestAt   *time.Time          `json:"oldest_failed_at"`
	ByKind     []letterCountRecord `json:"by_kind"`
}

type letterCountRecord struct {
	Kind      string     `json:"kind"`
	Certainty string     `json:"certainty"`
	Count     int        `json:"count"`
	OldestAt  *time.Time `json:"oldest_failed_at"`
}

type backlogRecord struct {
	Waiting    int        `json:"waiting"`
	OldestAt   *time.Time `json:"oldest_created_at"`
	AgeSeconds float64    `json:"age_seconds"`
}

func statusJSON(s runner.Status, needs []need) statusRecord {
	r := statusRecord{
		At: s.At.UTC(), Locks: []lockRecord{}, InDoubt: s.InDoubt, InDoubtOpen: s.InDoubtOpen, Expired: s.Expired,
		ExpiredSends: s.ExpiredSends, Unfinished: s.Unfinished, Needs: append([]need{}, needs...),
		Outbox:      backlogRecord{Waiting: s.Outbox.Count, OldestAt: timeOrNil(s.Outbox.Oldest), AgeSeconds: backlogAge(s).Seconds()},
		DeadLetters: lettersRecord{ByKind: []letterCountRecord{}},
	}
	for _, l := range s.Locks {
		r.Locks = append(r.Locks, lockRecord{
			Lock: l.Lock.Name, LockKey: l.Lock.Key, Held: l.Held, Holder: orNil(l.Holder), Since: timeOrNil(l.Since),
			LastRun: runJSON(l.Last), LastSuccessAt: timeOrNil(l.LastSuccess),
		})
	}
	n, oldest := countLetters(s)
	r.DeadLetters.Unresolved, r.DeadLetters.OldestAt = n, timeOrNil(oldest)
	for _, l := range s.Letters {
		r.DeadLetters.ByKind = append(r.DeadLetters.ByKind, letterCountRecord{string(l.Kind), string(l.Certainty), l.Count, timeOrNil(l.Oldest)})
	}
	return r
}

// backlogAge is how long the oldest row of the outbox has waited.
func backlogAge(s runner.Status) time.Duration {
	if s.Outbox.Oldest.IsZero() {
		return 0
	}
	return max(0, s.At.Sub(s.Outbox.Oldest))
}
