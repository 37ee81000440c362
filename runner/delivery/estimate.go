package delivery

import (
	"math"
	"slices"
	"time"
)

// epoch is the time from the end of one silence to the next refusal, and what
// the host took in it.
type epoch struct {
	number      int
	rested      time.Duration // how long the host was left alone before; 0: always
	first, last time.Time     // when its first and last request started
	starts      []time.Time   // when those started that the host took, the last mostStarts
	taken       int           // how many it took
	refused     bool
	beyond      bool // what was refused came at once when the window had grown
}

// mostStarts bounds an epoch's memory. At 1,000 a second that is 2 s, many
// times the burst that matters.
const mostStarts = 2048

func (e *epoch) sent(now time.Time) {
	if e.first.IsZero() {
		e.first = now
	}
	e.last = now
}

func (e *epoch) took(start time.Time) {
	if len(e.starts) == mostStarts {
		e.starts = e.starts[:copy(e.starts, e.starts[mostStarts/2:])]
	}
	e.starts = append(e.starts, start)
	e.taken++
}

// busiest finds the stretch up to the epoch's end in which the host showed the
// greatest rate, if it takes burst seconds' worth at once: the stretch in which
// its allowance went from full to empty. Before that it was not used up, which
// says nothing about its size. A half is added for what the last fraction of
// the allowance may have been.
func (e *epoch) busiest(burst float64) (taken, seconds, rate float64) {
	slices.SortFunc(e.starts, time.Time.Compare)
	taken, rate = 1, 0.5/max(burst, silence.Seconds())
	for i, start := range e.starts {
		n, span := float64(len(e.starts)-i), e.last.Sub(start).Seconds()
		if span+burst <= 0 {
			break
		}
		if r := (n - 0.5) / (span + burst); r > rate {
			taken, seconds, rate = n, span, r
		}
	}
	return taken, seconds, rate
}

// history is what epochs have taught about the host beyond its rate.
type history struct {
	known bool
	// burst is how many seconds' worth the host takes at once after a rest.
	burst float64
	// taken and seconds are those of the busiest stretch of the epoch before.
	taken, seconds float64
}

const (
	// usualBurst is supposed until two epochs have shown the burst.
	usualBurst = 0.1

	// Two epochs show the burst if they differ by so much.
	comparableTaken   = 20
	comparableSeconds = 0.25

	// A first estimate is some per cent off, a confirmed one is not: how far
	// below it the rate begins, and how much of it the rate grows by in a
	// second. With these a host that takes 100 a second is met by refusals
	// about 0, 10, 30 and 80 seconds after the start.
	firstMargin = 0.93
	margin      = 0.97
	firstClimb  = 0.01
	// slowestClimb keeps looking for what a host may take by now, fastestClimb
	// bounds the boost.
	slowestClimb = 0.0005
	fastestClimb = 0.1
	// An estimate is confirmed by one that is not below this part of it.
	confirming = 0.8
	// Above this part of the estimate the host evidently takes more by now.
	outgrown = 1.1

	// slowestRate is one request in ten seconds.
	slowestRate = 0.1
)

// learn draws the conclusion from an epoch that a refusal has ended.
func (p *pace) learn(now time.Time) {
	if p.epoch.beyond {
		p.phase, p.window, p.grown = windowed, p.window-1, now
		p.patience = max(firstPatience, 2*p.patience)
		return
	}
	rate, taken := p.estimate(now)
	p.next, p.boost = now, 1
	if p.phase == paced && rate >= confirming*p.ceiling {
		p.rate = rate * margin
		p.climb = max(p.climb/4, slowestClimb)
	} else {
		p.rate = rate * firstMargin
		// The fewer requests were counted, the farther off it may be.
		p.climb = min(max(0.2/taken, firstClimb), 5*firstClimb)
	}
	p.phase, p.ceiling = paced, rate
}

// estimate tells what the host takes in a second, and from how many requests.
//
// A host that allows R a second and a burst of B at once takes n = B + R·T in
// T seconds from full to empty. One epoch gives one equation for two unknowns,
// so the first estimate supposes B = R·usualBurst; two epochs of different
// length give both.
//
// Whatever the host's rule is, n/T is the most that R can be, and n divided by
// the time to the end of the silence the least. A rate that was just refused
// is not below R either.
func (p *pace) estimate(now time.Time) (rate, taken float64) {
	e, h := &p.epoch, &p.history
	if !h.known {
		h.burst = usualBurst
	}
	burst := h.burst
	if e.rested > 0 {
		burst = min(burst, e.rested.Seconds())
	}
	n, T, rate := e.busiest(burst)
	least, most := float64(e.taken)/max(now.Sub(e.first).Seconds(), silence.Seconds()), math.Inf(1)
	if T > 0 {
		most = n / T
	}
	if dn, dT := n-h.taken, T-h.seconds; h.known && dn >= comparableTaken && dT >= comparableSeconds {
		if r := dn / dT; r >= least && r <= most {
			rate = r
			h.burst = max(0, (n-0.5)/r-T)
		}
	}
	rate = max(min(max(rate, least), most), slowestRate)
	if p.phase == paced {
		rate = min(rate, p.rate)
	}
	h.known, h.taken, h.seconds = true, n, T
	return rate, n
}

// faster lets the rate grow by what a request's time is worth.
func (p *pace) faster(seconds float64) {
	if p.rate > outgrown*p.ceiling {
		p.boost += p.boost * seconds
	}
	p.rate += min(p.climb*p.boost, fastestClimb) * p.ceiling * seconds
}
