package runner

import (
	"errors"
	"testing"
)

func TestLookTwice_WhenARunIsUnknown_LooksAgain(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		looks []RunOutcome // what they find; empty fails
		want  RunOutcome
		err   error
	}{
		"well":            {[]RunOutcome{RunSucceeded}, RunSucceeded, nil},
		"running":         {[]RunOutcome{RunRunning}, RunRunning, nil},
		"ended meanwhile": {[]RunOutcome{RunUnknown, RunSucceeded}, RunSucceeded, nil},
		"crashed":         {[]RunOutcome{RunUnknown, RunUnknown}, RunUnknown, nil},
		"failed":          {[]RunOutcome{""}, "", failed},
		"failed later":    {[]RunOutcome{RunUnknown, ""}, "", failed},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			st, err := LookTwice(func() (Status, error) {
				n++
				if c.looks[n-1] == "" {
					return Status{}, failed
				}
				return Status{Locks: []LockState{{Last: PastRun{Outcome: RunSucceeded}}, {Last: PastRun{Outcome: c.looks[n-1]}}}}, nil
			})
			if !errors.Is(err, c.err) || n != len(c.looks) {
				t.Fatalf("LookTwice() = %v after %d looks, want %v after %d", err, n, c.err, len(c.looks))
			}
			if err == nil && st.Locks[1].Last.Outcome != c.want {
				t.Errorf("the run is %s, want %s", st.Locks[1].Last.Outcome, c.want)
			}
		})
	}
}
