package runner

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LossPolicy says what happens to a job whose lock was lost (--on-lock-loss).
type LossPolicy string

const (
	// LossPause stops the job, takes the lock again and, if nobody ran in
	// between, continues it.
	LossPause LossPolicy = "pause"
	// LossStop ends the job: SIGTERM, then SIGKILL after KillAfter.
	LossStop LossPolicy = "stop"
)

// Job is what one `oncectl run` is asked to do.
type Job struct {
	Lock LockID
	Argv []string
	Env  []string // the environment that oncectl was started with
	// Schedule gives the tick that a moment belongs to; nil without --tick.
	Schedule Ticker
	// OnceKey is the key of --once; empty without.
	OnceKey string

	Wait      time.Duration // how long to wait for a busy lock; 0: not at all
	Splay     time.Duration // the range of the fixed delay before the lock
	Timeout   time.Duration // 0: none
	KillAfter time.Duration // from SIGTERM to SIGKILL
	LockGrace time.Duration // how long a paused job waits for its lock
	OnLoss    LossPolicy
	QuietOK   bool
	// KeepOutput is how many bytes of the end of all output a Result is to hold.
	KeepOutput int
	// KeepArgs keeps the command's arguments in a dead letter. They may hold
	// secrets, so that it is off unless asked for.
	KeepArgs bool
}

// Ticker maps a moment to the tick it belongs to.
type Ticker interface {
	// TickAt returns the latest scheduled time for now, and false if the
	// schedule has never fired by then.
	TickAt(now time.Time) (time.Time, bool)
}

// key returns the run's key and, for a tick, its time.
func (j Job) key(now time.Time) (key string, scheduledAt time.Time, err error) {
	if j.Schedule == nil {
		return j.OnceKey, time.Time{}, nil
	}
	at, ok := j.Schedule.TickAt(now)
	if !ok {
		return "", time.Time{}, fmt.Errorf("finding the tick for %s: %w: the schedule has never fired", now.UTC().Format(time.RFC3339), ErrInvalid)
	}
	return TickKey(at), at, nil
}

// TickKey is the key of the tick at that instant: UTC, RFC 3339.
func TickKey(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// SplayDelay is the part of splay that host and lock fix: it spreads hosts
// that share a crontab, and is the same for one of them every time.
func SplayDelay(splay time.Duration, host, lock string) time.Duration {
	if splay <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(host + "\x00" + lock))
	// The upper bits of FNV are well mixed only after a final multiplication.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd // MurmurHash3's fmix64
	x ^= x >> 33
	return time.Duration(x % uint64(splay))
}

// jobEnv is the job's environment: oncectl's own, but for the variables that
// describe the run.
func jobEnv(base []string, run Run, socket string) []string {
	vars := []string{
		"ONCECTL_RUN_ID=" + strconv.FormatInt(run.ID, 10),
		"ONCECTL_LOCK=" + run.Lock.Name,
	}
	if socket != "" {
		vars = append(vars, "ONCECTL_SOCKET="+socket)
	}
	if run.Key != "" {
		vars = append(vars, "ONCECTL_KEY="+run.Key)
	}
	if !run.ScheduledAt.IsZero() {
		vars = append(vars, "ONCECTL_SCHEDULED_AT="+TickKey(run.ScheduledAt))
	}
	return append(withoutRunVars(base), vars...)
}

// withoutRunVars drops what an outer run says about itself, so that a nested
// run without a key does not pass on the outer one's.
func withoutRunVars(env []string) []string {
	ours := []string{"ONCECTL_RUN_ID", "ONCECTL_LOCK", "ONCECTL_SOCKET", "ONCECTL_KEY", "ONCECTL_SCHEDULED_AT"}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(ours, name)
	})
}
