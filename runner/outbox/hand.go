package outbox

import (
	"slices"

	"github.com/oncectl/oncectl/runner"
)

// hand is the rows that are leased. Of each key one at a time is ready or in
// flight; the others follow it.
type hand struct {
	rows  map[int64]bool
	ready []runner.OutboxRow
	keys  map[string][]runner.OutboxRow // what follows; there for each key in hand
}

func newHand() hand {
	return hand{rows: map[int64]bool{}, keys: map[string][]runner.OutboxRow{}}
}

func (h *hand) empty() bool { return len(h.rows) == 0 }

// add takes leased rows. One that is in hand already was leased anew, because
// its lease had ended.
func (h *hand) add(rows []runner.OutboxRow) {
	for _, r := range rows {
		if h.rows[r.ID] {
			continue
		}
		h.rows[r.ID] = true
		if r.Keyed {
			followers, busy := h.keys[r.Key]
			if busy {
				h.keys[r.Key] = append(followers, r)
				continue
			}
			h.keys[r.Key] = nil
		}
		h.ready = append(h.ready, r)
	}
}

// next is the row to publish next.
func (h *hand) next() (runner.OutboxRow, bool) {
	if len(h.ready) == 0 {
		return runner.OutboxRow{}, false
	}
	r := h.ready[0]
	h.ready = h.ready[1:]
	return r, true
}

// again makes a row ready that could not be tried.
func (h *hand) again(r runner.OutboxRow) { h.ready = slices.Insert(h.ready, 0, r) }

// advance takes a row that was dealt with out of the hand; what follows it is
// ready. It reports whether that was the last of its key in hand.
func (h *hand) advance(r runner.OutboxRow) (last bool) {
	delete(h.rows, r.ID)
	if !r.Keyed {
		return false
	}
	followers := h.keys[r.Key]
	if len(followers) == 0 {
		delete(h.keys, r.Key)
		return true
	}
	h.ready = append(h.ready, followers[0])
	h.keys[r.Key] = followers[1:]
	return false
}

// dropKey takes a row out of the hand together with what follows it, and
// returns the followers' ids.
func (h *hand) dropKey(r runner.OutboxRow) []int64 {
	delete(h.rows, r.ID)
	if !r.Keyed {
		return nil
	}
	ids := h.forget(h.keys[r.Key])
	delete(h.keys, r.Key)
	return ids
}

// dropWaiting takes all rows out of the hand that are not in flight.
func (h *hand) dropWaiting() []int64 {
	ids := h.forget(h.ready)
	for _, r := range h.ready {
		ids = append(ids, h.dropKey(r)...)
	}
	h.ready = nil
	for key, followers := range h.keys {
		ids = append(ids, h.forget(followers)...)
		h.keys[key] = nil
	}
	return ids
}

func (h *hand) forget(rows []runner.OutboxRow) []int64 {
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
		delete(h.rows, r.ID)
	}
	return ids
}

// ids are those of all rows in hand.
func (h *hand) ids() []int64 {
	ids := make([]int64, 0, len(h.rows))
	for id := range h.rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// lose takes rows out that are no longer ours and have not begun, and what
// follows them; the ids that are still held are returned. A row in flight is
// found out when it is marked.
func (h *hand) lose(lost map[int64]bool) (back []int64) {
	for _, r := range slices.Clone(h.ready) {
		if !lost[r.ID] {
			continue
		}
		h.ready = slices.DeleteFunc(h.ready, func(o runner.OutboxRow) bool { return o.ID == r.ID })
		back = append(back, h.dropKey(r)...)
	}
	for key, followers := range h.keys {
		if i := slices.IndexFunc(followers, func(r runner.OutboxRow) bool { return lost[r.ID] }); i >= 0 {
			back = append(back, h.forget(followers[i:])...)
			h.keys[key] = followers[:i]
		}
	}
	return slices.DeleteFunc(back, func(id int64) bool { return lost[id] })
}
