package broker

import (
	"iter"

	"github.com/oncectl/oncectl/runner"
)

// partSize bounds one request's estimated size well below maxSettle.
const partSize = 40 << 20

// settleParts cuts settlements into runs that fit one request. There is always
// one, be it empty.
func settleParts(all []runner.Settlement) iter.Seq[[]runner.Settlement] {
	return func(yield func([]runner.Settlement) bool) {
		from, size := 0, 0
		for i := range all {
			n := settlementSize(all[i])
			if i > from && size+n > partSize {
				if !yield(all[from:i]) {
					return
				}
				from, size = i, 0
			}
			size += n
		}
		yield(all[from:])
	}
}

func payloads(all []runner.Settlement) (size int) {
	for i := range all {
		size += settlementSize(all[i])
	}
	return size
}

// settlementSize is at least a settlement's length on the wire: base64 makes 4
// bytes of 3, and an escape makes 6 of 1.
func settlementSize(s runner.Settlement) int {
	const fields = 512 // names, numbers, times, hashes
	n := fields + 6*len(s.ID)
	if d := s.DeadLetter; d != nil {
		n += (len(d.Payload)+len(d.Request))/3*4 + 6*(len(d.Name)+len(d.EventID)+len(d.LastError))
	}
	return n
}

func claimSize(c runner.ClaimRequest) int {
	n := 0
	for i, id := range c.IDs {
		n += 2*len(id) + 80 // no control characters, so an escape makes 2 of 1
		if i < len(c.Targets) {
			n += 2 * len(c.Targets[i])
		}
	}
	return n
}
