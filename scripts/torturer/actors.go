//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// actor is somebody who uses oncectl again and again.
type actor struct {
	*world
	*rand.Rand
	name  string
	store string
	n     int // what it has done
}

var pgRoutes = []string{"direct", "proxy", "pooled", "session"}

// startActors starts as many as two slow processors bear.
func (w *world) startActors() {
	for store, numbers := range map[string][]int{"pg": {3, 3, 2, 1, 2, 3, 2, 2, 2, 1}, "local": {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}} {
		for i, do := range []func(*actor){
			(*actor).runShort, (*actor).runLong, (*actor).runKey, (*actor).runTick, (*actor).claim,
			(*actor).send, (*actor).batch, (*actor).add, (*actor).publish, (*actor).retry,
		} {
			for n := range numbers[i] {
				name := fmt.Sprintf("%s/%d/%d", store, i, n)
				a := &actor{world: w, Rand: w.choices(name), name: name, store: store}
				w.actors.Go(func() {
					for !w.stopping() {
						do(a)
						a.n++
						a.rest()
					}
				})
			}
		}
	}
}

func (a *actor) rest() { a.sleep(a.upTo(800 * time.Millisecond)) }

func (a *actor) upTo(d time.Duration) time.Duration { return time.Duration(a.Int64N(int64(d))) }

func (a *actor) chance(percent int) bool { return a.IntN(100) < percent }

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// oncectl calls it somewhere, and returns it when it has ended; nil if it was
// not started.
func (a *actor) oncectl(c call) *process { return a.world.run(a.where(&c), a.nextID(), c) }

func (a *actor) where(c *call) *host {
	c.store = a.store
	if c.route == "" {
		c.route = pick(a.Rand, pgRoutes)
	}
	return pick(a.Rand, a.hosts)
}

// several are the numbers of those who do the same at once.
func (a *actor) several() int { return 1 + a.IntN(3)*a.IntN(2) }

// atOnce calls the same on some hosts at once.
func (a *actor) atOnce(n int, make func() call, after func(*process)) {
	var all []*process
	for range n {
		c := call{store: a.store, route: pick(a.Rand, pgRoutes)}
		h := pick(a.Rand, a.hosts)
		made := make()
		made.store, made.route = c.store, c.route
		if p := a.start(h, a.nextID(), made); p != nil {
			all = append(all, p)
		}
	}
	for _, p := range all {
		<-p.done
		after(p)
	}
}

// job is the command of a run: it takes so long, and may claim and send.
func (a *actor) job(lock string, d time.Duration, status int) []string {
	args := []string{
		a.self, "job", "-file", a.stamps(lock), "-id", fmt.Sprintf("%s/%d/%x", a.name, a.n, a.Uint32()), "-for", d.String(),
		"-stop", a.stopFile, "-won", a.evidence("won"), "-status", fmt.Sprint(status),
	}
	for i := range a.IntN(4) {
		args = append(args, "-claim", fmt.Sprintf("%s/claim/%d/%d", a.name, a.n, i))
	}
	if a.chance(25) {
		id := fmt.Sprintf("%s/send/%d", a.name, a.n)
		args = append(append(args, "--", "oncectl"), a.sending(id)...)
	}
	return args
}

func (a *actor) stamps(lock string) string { return a.evidence("stamps/" + a.store + "." + lock) }

func (a *actor) runShort() {
	lock := fmt.Sprint("short", a.IntN(3))
	a.runLock(lock, a.upTo(2*time.Second), a.upTo(20*time.Second))
}

// runLong keeps its lock for longer than any lease.
func (a *actor) runLong() {
	a.runLock(fmt.Sprint("long", a.IntN(2)), 5*time.Second+a.upTo(40*time.Second), a.upTo(time.Minute))
}

func (a *actor) runLock(lock string, d, wait time.Duration) {
	c := call{lock: lock, args: []string{"run", "--lock", lock, "--wait", wait.String(), "-v"}}
	if a.chance(15) {
		c.args = append(c.args, "--on-lock-loss", "stop")
	}
	h := a.where(&c)
	c.args = append(append(c.args, "--"), a.job(lock, d, a.IntN(5)/4*3)...)
	a.run(h, a.nextID(), c)
}

// busy is the exit status of a run that found its lock busy.
const busy = 75

// runKey runs a key until it is said to have succeeded.
func (a *actor) runKey() {
	lock, key := "keys"+strings.ReplaceAll(a.name, "/", "-"), fmt.Sprint("key/", a.n)
	a.know(func() { a.keys[a.store+" "+lock+" "+key] = false })
	for said := false; !said && !a.stopping(); {
		a.atOnce(a.several(), func() call { return a.keyCall(lock, key) }, func(p *process) {
			if p.succeeded() {
				said = true
				a.know(func() { a.keys[a.store+" "+lock+" "+key] = true })
			}
		})
		a.rest()
	}
}

func (a *actor) keyCall(lock, key string) call {
	args := []string{"run", "--lock", lock, "--once", key, "--busy-exit", fmt.Sprint(busy), "--wait", a.upTo(5 * time.Second).String(), "-v", "--"}
	return call{lock: lock, args: append(args, a.job(lock, a.upTo(time.Second), a.IntN(5)/4*3)...)}
}

// succeeded tells whether the run, or one before, is said to have succeeded. A
// run that was told to end is recorded as stopped, whatever its job made of that.
func (p *process) succeeded() bool {
	said := p.err.String()
	return p.status == 0 && !strings.Contains(said, "shows as unknown") && !strings.Contains(said, "ending the job")
}

func (a *actor) runTick() {
	args := []string{"run", "--lock", "tick", "--tick", "* * * * *", "--busy-exit", fmt.Sprint(busy), "-v", "--"}
	from := time.Now()
	a.atOnce(a.several(), func() call {
		return call{lock: "tick", args: append(args, a.job("tick", a.upTo(3*time.Second), a.IntN(5)/4*3)...)}
	}, func(p *process) {
		if p.succeeded() {
			a.know(func() { a.ticks = append(a.ticks, tickDone{a.store, "tick", from, time.Now(), p.id}) })
		}
	})
	a.sleep(a.upTo(5 * time.Second))
}

func (a *actor) claim() {
	prefix := fmt.Sprintf("%s/%d/", a.name, a.n)
	switch a.IntN(3) {
	case 0: // one
		a.atOnce(1+a.IntN(3), func() call { return call{args: []string{"claim", prefix + "one"}} }, func(p *process) {
			if p.status == 0 {
				a.hasWon(prefix+"one", p)
			}
		})
	case 1: // a stream
		var ids strings.Builder
		for i := range 40 {
			fmt.Fprintln(&ids, prefix+fmt.Sprint(i))
		}
		a.atOnce(1+a.IntN(3), func() call { return call{args: []string{"claim", "-"}, stdin: ids.String()} }, func(p *process) {
			for id := range strings.Lines(p.out.String()) {
				if strings.HasSuffix(id, "\n") {
					a.hasWon(strings.TrimSpace(id), p)
				}
			}
		})
	default: // with a command
		lock := "command" // not one: its stamps say which command has begun
		a.atOnce(1+a.IntN(3), func() call {
			id := prefix + "command"
			return call{args: append([]string{"claim", id, "--"}, a.self, "job", "-file", a.stamps(lock), "-id", id, "-for", a.upTo(time.Second).String(),
				"-stop", a.stopFile, "-status", fmt.Sprint(a.IntN(5)/4*3))}
		}, func(*process) {})
	}
}

func (a *actor) hasWon(id string, p *process) {
	a.know(func() { a.won[id] = append(a.won[id], p.id) })
}
