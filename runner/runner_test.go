package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// run lives one run in virtual time. during is called when the job has started.
func (w *world) run(t *testing.T, job Job, during func(*fakeChild)) (Result, time.Duration) {
	t.Helper()
	if job.Lock.Name == "" {
		job.Lock.Name = "nightly"
	}
	if job.OnLoss == "" {
		job.OnLoss = LossPause
	}
	job.Argv, job.KillAfter, job.LockGrace = []string{"job"}, 25*time.Second, 30*time.Second
	began := time.Now()
	results := make(chan Result)
	go func() {
		res, err := w.runner().Run(context.Background(), job)
		if err != nil {
			t.Error(err)
		}
		results <- res
	}()
	if during != nil {
		<-w.started
		synctest.Wait()
		during(w.child)
	}
	res := <-results
	return res, time.Since(began)
}

func (w *world) wantLog(t *testing.T, want ...string) {
	t.Helper()
	// The broker is opened, and the child closed, beside other steps.
	got := slices.DeleteFunc(slices.Clone(w.log), func(s string) bool { return s == "broker open" || s == "close" })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
}

func TestRun_WhenTheJobEnds_ReleasesLastOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, _ := w.run(t, Job{OnceKey: "v1"}, func(c *fakeChild) { c.finish(Exit{}) })
		w.wantLog(t, "lock", "begin v1", "serve", "start", "broker close", "finish succeeded", "release")
		if res.Outcome != RunSucceeded || res.Exit.Status() != 0 || w.end.DeadLetter != nil {
			t.Errorf("result %+v, end %+v", res, w.end)
		}
		if last, child := len(w.log)-1, slices.Index(w.log, "close"); child < 0 || w.log[last] != "release" {
			t.Errorf("the child is not closed before the lock is free: %v", w.log)
		}
	})
}

func TestRun_WhenTheJobFails_LeavesADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, _ := w.run(t, Job{}, func(c *fakeChild) { c.finish(Exit{Code: 3}) })
		d := w.end.DeadLetter
		if res.Outcome != RunFailed || d == nil || d.LastError != "the command ended with exit status 3; stderr ends:\nthe end\uFFFD\uFFFD" {
			t.Errorf("result %+v, dead letter %+v", res, d)
		}
		if d.Request != nil || d.PayloadHash != HashCommand([]string{"job"}) {
			t.Errorf("dead letter %+v", d)
		}
	})
}

func TestRun_WhenTheLockIsBusy_SkipsAfterTheWait(t *testing.T) {
	for _, wait := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.tries = []error{ErrBusy}
			res, took := w.run(t, Job{Wait: wait}, nil)
			if !errors.Is(res.Skipped, ErrBusy) || took != wait || len(w.log) != 0 {
				t.Errorf("wait %v: %+v after %v, steps %v", wait, res, took, w.log)
			}
		})
	}
}

func TestRun_WhenTheLockComesFreeInTime_Runs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.tries = append(slices.Repeat([]error{ErrBusy}, 10), nil)
		res, _ := w.run(t, Job{Wait: time.Minute}, func(c *fakeChild) { c.finish(Exit{}) })
		if res.Skipped != nil || res.Outcome != RunSucceeded {
			t.Errorf("%+v", res)
		}
	})
}

func TestRun_WhenASignalComesWhileWaiting_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.tries = []error{ErrBusy}
		w.signals <- syscall.SIGTERM
		res, took := w.run(t, Job{Wait: time.Hour}, nil)
		if res.Interrupted != syscall.SIGTERM || took > time.Second {
			t.Errorf("%+v after %v", res, took)
		}
	})
}

func TestRun_WhenTheKeyHasSucceeded_SkipsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.begin = ErrDone
		res, _ := w.run(t, Job{OnceKey: "v1"}, nil)
		if !errors.Is(res.Skipped, ErrDone) {
			t.Errorf("%+v", res)
		}
		w.wantLog(t, "lock", "begin v1", "broker close", "release")
	})
}

// daily is a schedule with a tick each midnight.
type daily struct{}

func (daily) TickAt(now time.Time) (time.Time, bool) { return now.Truncate(24 * time.Hour), true }

// The key of a tick comes from the store's clock: hosts whose own clocks
// disagree name one tick alike.
func TestRun_WhenTheHostsClockIsOff_TheTickIsTheStores(t *testing.T) {
	for _, ahead := range []time.Duration{0, 3 * time.Second, -3 * time.Minute, 25 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.ahead = ahead
			want := time.Now().Add(ahead).UTC().Truncate(24 * time.Hour).Format(time.RFC3339)
			_, _ = w.run(t, Job{Schedule: daily{}}, func(c *fakeChild) { c.finish(Exit{}) })
			if !slices.Contains(w.log, "begin "+want) {
				t.Errorf("%v ahead: steps %v, want the tick %s", ahead, w.log, want)
			}
		})
	}
}

func TestRun_WhenThePredecessorIsUnfinished_WaitsAsLongAsItMayLive(t *testing.T) {
	before := &Run{ID: 1, Host: Host{Name: "there", ID: "other boot"}, PID: 7}
	here := &Run{ID: 1, Host: Host{Name: "here", ID: "boot"}, PID: 7}
	for name, c := range map[string]struct {
		begun Begun
		gone  bool
		want  time.Duration
	}{
		"none":                        {Begun{}, false, 0},
		"elsewhere":                   {Begun{Predecessor: before}, true, HandoverWait},
		"server restarted":            {Begun{Predecessor: before, ServerChanged: true}, true, RestartWait},
		"here and gone":               {Begun{Predecessor: here}, true, 0},
		"here, gone with the server":  {Begun{Predecessor: here, ServerChanged: true}, true, HandoverWait},
		"owed by one that was ended":  {Begun{Wait: 17 * time.Second}, false, 17 * time.Second},
		"owed by more than one":       {Begun{Predecessor: before, Wait: 17 * time.Second}, false, 17 * time.Second},
		"here and alive":              {Begun{Predecessor: here}, false, HandoverWait},
		"lock dies with its last job": {Begun{Predecessor: before, NoHandover: true}, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.begun, w.gone = c.begun, c.gone
			_, took := w.run(t, Job{}, func(c *fakeChild) { c.finish(Exit{}) })
			if took != c.want {
				t.Errorf("%s: started after %v, want %v", name, took, c.want)
			}
		})
	}
}

func TestRun_WhenItsKeySucceedsWhileItWaits_IsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.begun, w.again = Begun{Predecessor: &Run{ID: 1}}, ErrDone
		res, err := w.runner().Run(t.Context(), Job{OnceKey: "k"})
		if err != nil || res.Skipped != ErrDone {
			t.Errorf("Run() = %+v, %v", res, err)
		}
		w.wantLog(t, "lock", "begin k", "begin k", "broker close", "finish skipped", "release")
	})
}

// A record that is left says that the run is unknown, and somebody has to be told.
func TestRun_WhenASkippedOneCannotBeTakenBack_SaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.begun, w.again, w.finish = Begun{Predecessor: &Run{ID: 1}}, ErrDone, ErrUnavailable
		res, err := w.runner().Run(t.Context(), Job{OnceKey: "k"})
		if err != nil || res.Skipped != ErrDone || !errors.Is(res.RecordErr, ErrUnavailable) {
			t.Errorf("Run() = %+v, %v", res, err)
		}
	})
}

func TestRun_WhenTheLockIsLostAndBackInTime_PausesAndContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, _ := w.run(t, Job{}, func(c *fakeChild) {
			w.tries = []error{ErrUnavailable, ErrBusy, nil}
			close(w.lock.lost)
			time.Sleep(10 * time.Second)
			c.finish(Exit{})
		})
		w.wantLog(t, "lock", "begin ", "serve", "start",
			// One resume looks who has the busy lock, the other is of the new one.
			"hold", "pause", "resume", "lock", "resume", "release", "continue", "serve",
			"broker close", "finish succeeded", "release")
		if res.Outcome != RunSucceeded {
			t.Errorf("%+v", res)
		}
	})
}

func TestRun_WhenTheLostLockWasHeldAllAlong_TakesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.regain = nil
		res, _ := w.run(t, Job{}, func(c *fakeChild) {
			for range 2 { // it can be lost again
				close(w.lock.lost)
				synctest.Wait()
			}
			c.finish(Exit{})
		})
		again := []string{"hold", "pause", "regain", "resume", "continue", "serve"}
		w.wantLog(t, slices.Concat([]string{"lock", "begin ", "serve", "start"},
			again, again, []string{"broker close", "finish succeeded", "release"})...)
		if res.Outcome != RunSucceeded {
			t.Errorf("%+v", res)
		}
	})
}

func TestRun_WhenAnotherHasTheLostLock_KillsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.resume = ErrFenced
		res, took := w.run(t, Job{}, func(*fakeChild) {
			w.tries = []error{ErrBusy}
			close(w.lock.lost)
		})
		if res.Outcome != RunLost || took > time.Second {
			t.Errorf("%+v after %v", res, took)
		}
	})
}

func TestRun_WhenAnotherRanInBetween_KillsWithoutContinuing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.resume = ErrFenced
		res, _ := w.run(t, Job{}, func(*fakeChild) { close(w.lock.lost) })
		if res.Outcome != RunLost || slices.Contains(w.log, "continue") || !slices.Contains(w.log, "kill") {
			t.Errorf("%+v, steps %v", res, w.log)
		}
		if !strings.Contains(w.end.DeadLetter.LastError, "another run has had it") {
			t.Errorf("dead letter %+v", w.end.DeadLetter)
		}
	})
}

func TestRun_WhenTheLockStaysAway_KillsAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, took := w.run(t, Job{}, func(*fakeChild) {
			w.tries = []error{ErrBusy}
			close(w.lock.lost)
		})
		if res.Outcome != RunLost || took < 29*time.Second || took > 32*time.Second {
			t.Errorf("%+v after %v", res, took)
		}
	})
}

func TestRun_WhenTheLockIsLostAndThePolicyIsStop_StopsAndKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, took := w.run(t, Job{OnLoss: LossStop}, func(*fakeChild) { close(w.lock.lost) })
		if res.Outcome != RunLost || took != 25*time.Second || slices.Contains(w.log, "pause") {
			t.Errorf("%+v after %v, steps %v", res, took, w.log)
		}
	})
}

func TestRun_WhenStopped_GivesTheJobItsTimeAndKillsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, took := w.run(t, Job{}, func(*fakeChild) { w.signals <- syscall.SIGTERM })
		if res.Outcome != RunStopped || res.Exit.Status() != 137 || took != 25*time.Second {
			t.Errorf("%+v after %v", res, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, _ := w.run(t, Job{}, func(c *fakeChild) {
			w.signals <- syscall.SIGTERM
			synctest.Wait()
			c.finish(Exit{}) // traps it and ends well; what it left behind goes
		})
		if res.Outcome != RunStopped || res.Exit.Status() != 0 || !slices.Contains(w.log, "kill") {
			t.Errorf("%+v, steps %v", res, w.log)
		}
	})
}

func TestRun_WhenTheTimeLimitPasses_IsRecordedAsTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, took := w.run(t, Job{Timeout: time.Minute}, nil)
		if res.Outcome != RunTimedOut || took != 85*time.Second {
			t.Errorf("%+v after %v", res, took)
		}
	})
}

func TestRun_WhenTheGuardHasPausedTheJob_LooksAfterTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		res, _ := w.run(t, Job{}, func(c *fakeChild) {
			c.halted <- struct{}{}
			synctest.Wait()
			c.finish(Exit{})
		})
		if res.Outcome != RunSucceeded || !slices.Contains(w.log, "continue") {
			t.Errorf("%+v, steps %v", res, w.log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.resume = ErrFenced
		res, _ := w.run(t, Job{}, func(c *fakeChild) {
			w.check = ErrLockLost
			c.halted <- struct{}{}
		})
		if res.Outcome != RunLost || slices.Contains(w.log, "continue") {
			t.Errorf("%+v, steps %v", res, w.log)
		}
	})
}
