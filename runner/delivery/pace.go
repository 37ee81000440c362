package delivery

import (
	"time"

	"github.com/oncectl/oncectl/runner"
)

// pace decides when the next request to one host may start. It is a state
// machine without clock, lock or goroutine: times come in.
//
// Why not the usual additive increase and multiplicative decrease: each
// refusal costs the silence that the host asks for, commonly a second in which
// it would have taken a second's worth of requests. A sawtooth that meets a
// refusal every few seconds spends a third of its time in silence. So the
// pace treats a refusal as a measurement, and buys as few as it can:
//
//   - open: no refusal so far. As many requests in flight as the window
//     allows, which grows while it is used up, so that the first refusal hits
//     few requests. The default concurrency is allowed from the start.
//   - A refusal ends an epoch. The host is left alone for as long as it says.
//     Then what it took in the epoch tells its rate (see estimate.go).
//   - paced: requests evenly spaced, a little slower than the measured rate,
//     and slowly faster from there. Each refusal that confirms the rate makes
//     the climb to the next one four times slower.
//   - windowed: the other kind of limit, a number in flight. It is believed if
//     the first refusal comes at once when the window has grown by one, which
//     is where such a limit shows and a rate shows by chance only. Then the
//     window is one less, and tries one more every now and then. A refusal
//     that does not fit leads to paced.
type pace struct {
	phase     phase
	inFlight  int
	delivered uint64 // confirmed requests, ever
	idleSince time.Time
	trip      time.Duration // how long the last request took that the host took

	// while open or windowed
	window   float64       // requests in flight
	grown    time.Time     // when the window last grew by one
	patience time.Duration // how long windowed stays as it is

	// while paced
	rate    float64   // requests a second
	ceiling float64   // the last estimate of what the host takes
	climb   float64   // how much of ceiling the rate grows by in a second
	boost   float64   // a factor of climb, grows while no refusal comes
	next    time.Time // when the next request is due

	heldUntil time.Time
	// fruitless counts the epochs in a row in which the host took nothing.
	// While it is not 0, one request at a time finds out whether it does again.
	fruitless int

	epoch   epoch
	history history
}

type phase int

const (
	open phase = iota
	windowed
	paced
)

const (
	// firstWindow is the number in flight that a host gets at once: the
	// default of --concurrency, which so loses nothing.
	firstWindow = 4
	// Up to suspectWindow, where limits of a number in flight are common, the
	// window stays firstDwell and then dwell at each size, long enough to tell
	// such a limit from a rate. At 20 ms a request that is 6 and then 2 to 3
	// round trips.
	suspectWindow = 8
	firstDwell    = 120 * time.Millisecond
	dwell         = 50 * time.Millisecond
	// growth is what each answer adds to a larger window: a quarter for each
	// round trip. Doubling would find the end sooner, but with as many
	// refusals as there are requests in flight.
	growth = 0.25
	// firstPatience is how long a limit in flight is kept before one more is
	// tried; doubled each time that is refused.
	firstPatience = 30 * time.Second

	// silence is how long a host is left alone that does not say how long,
	// doubled for each epoch in which it took nothing, up to longestSilence.
	silence        = 100 * time.Millisecond
	longestSilence = time.Minute

	// leastSlack and mostSlack bound how much lateness is made up for, by
	// timers and senders on a busy machine.
	leastSlack = 20 * time.Millisecond
	mostSlack  = 100 * time.Millisecond

	// idleReset begins a new epoch after so much time without requests: the
	// host's allowance has filled up, and the time before says nothing.
	idleReset = 5 * time.Second
)

func newPace() pace { return pace{window: firstWindow} }

// blank reports whether forgetting p and making a new one would change next to
// nothing, and from when on: senders may just be busy with something else.
func (p *pace) blank() (ok bool, from time.Time) {
	return p.inFlight == 0 && p.phase == open && !p.epoch.refused, p.idleSince.Add(idleReset)
}

// turn is the right to send one request; it remembers when it was given.
type turn struct {
	epoch int
	level int // how many were in flight with it
	start time.Time
}

// ready reports whether a request may start now, and if not, when; the zero
// time if some request must end first.
func (p *pace) ready(now time.Time) (ok bool, at time.Time) {
	switch {
	case now.Before(p.heldUntil):
		return false, p.heldUntil
	case p.fruitless > 0 && p.inFlight > 0:
		return false, time.Time{}
	case p.phase != paced && p.inFlight >= int(p.window):
		return false, time.Time{}
	case p.phase == paced && now.Before(p.next):
		return false, p.next
	}
	return true, time.Time{}
}

// begin starts a request, for which ready was true.
func (p *pace) begin(now time.Time) turn {
	switch {
	case p.epoch.refused:
		p.learn(now)
		p.epoch = epoch{number: p.epoch.number + 1, rested: now.Sub(p.epoch.last)}
	case p.inFlight == 0 && !p.idleSince.IsZero() && now.Sub(p.idleSince) > idleReset:
		p.epoch = epoch{number: p.epoch.number + 1, rested: now.Sub(p.idleSince)}
	}
	if p.grown.IsZero() {
		p.grown = now.Add(firstDwell - dwell)
	}
	p.inFlight++
	p.epoch.sent(now)
	if p.phase == paced {
		p.space(now)
	}
	return turn{epoch: p.epoch.number, level: p.inFlight, start: now}
}

// valid reports whether t may still be used.
func (p *pace) valid(t turn, now time.Time) bool {
	return t.epoch == p.epoch.number && !p.epoch.refused && !now.Before(p.heldUntil)
}

// giveUp takes back a turn that was not used.
func (p *pace) giveUp() { p.inFlight-- }

// space fixes when the next request is due. It climbs only if the pace is what
// senders wait for: a rate that nobody uses proves nothing.
func (p *pace) space(now time.Time) {
	earliest := now.Add(-p.slack())
	inUse := p.next.After(earliest)
	if !inUse {
		p.next = earliest
	}
	interval := 1 / p.rate
	p.next = p.next.Add(time.Duration(interval * float64(time.Second)))
	if inUse {
		p.faster(interval)
	}
}

// slack is how much lateness is made up for. What was not sent in time has
// been added to the host's allowance meanwhile, which can hold its burst.
func (p *pace) slack() time.Duration {
	burst := time.Duration(0.8 * p.history.burst * float64(time.Second))
	return min(max(burst, leastSlack), mostSlack)
}

// answered takes the end of a request into account.
func (p *pace) answered(t turn, f runner.Feedback, now time.Time) {
	p.inFlight--
	p.idleSince = now
	switch f.Answer {
	case runner.AnswerDelivered:
		p.delivered++
		p.taken(t, now)
	case runner.AnswerOther:
		p.taken(t, now)
	case runner.AnswerRefused:
		p.refused(t, f.RetryAfter, now)
	}
}

// taken: the host took a request.
func (p *pace) taken(t turn, now time.Time) {
	p.fruitless = 0
	p.trip = now.Sub(t.start)
	if t.epoch != p.epoch.number {
		return
	}
	p.epoch.took(t.start)
	if !p.epoch.refused && t.level >= int(p.window) {
		p.widen(now)
	}
}

// widen lets the window grow, which was used up.
func (p *pace) widen(now time.Time) {
	since := now.Sub(p.grown)
	switch {
	case p.phase == paced,
		p.phase == windowed && since < p.patience,
		p.phase == open && p.window < suspectWindow && since < dwell:
	case p.phase == open && p.window >= suspectWindow:
		p.window += growth
	default:
		p.window++
		p.grown = now
	}
}

// refused: the host did not take a request. The first refusal of an epoch ends
// it; others come from requests that were in flight then.
func (p *pace) refused(t turn, after time.Duration, now time.Time) {
	if t.epoch == p.epoch.number && !p.epoch.refused {
		after = max(after, min(silence<<min(p.fruitless, 16), longestSilence))
		p.epoch.refused = true
		p.epoch.beyond = p.beyondWindow(t)
		if len(p.epoch.starts) == 0 {
			p.fruitless++
		}
	}
	if until := now.Add(max(0, after)); until.After(p.heldUntil) {
		p.heldUntil = until
	}
}

// beyondWindow reports whether the refused t began at once when the window had
// grown, that is, within a quarter of a round trip.
func (p *pace) beyondWindow(t turn) bool {
	since := t.start.Sub(p.grown)
	return p.phase != paced && p.window > firstWindow && p.window <= suspectWindow &&
		since >= 0 && since < p.trip/4
}
