package outbox

import (
	"context"

	"github.com/oncectl/oncectl/runner"
)

// HTTP publishes rows by URL. The deliverer tries once: that there are other
// tries, and when, is the outbox's to say, so that no row waits in the place of
// another.
type HTTP struct {
	Deliverer runner.Deliverer
	// Message is what all have in common.
	Message runner.Message
}

// Publish implements Publisher. The receiver can tell a repeat by the row's id,
// so that what is in doubt is repeated too.
func (h HTTP) Publish(ctx context.Context, row runner.OutboxRow) runner.DeliveryResult {
	m := h.Message
	m.ID, m.Body, m.Idempotent = row.EventID(), row.Payload, true
	return h.Deliverer.Deliver(ctx, m)
}
