package outbox

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/oncectl/oncectl/runner"
)

// RetryStore is what sending a failed row again needs of a store.
type RetryStore interface {
	Store
	runner.OutboxReviver
}

// Retry sends rows again that have failed, on somebody's own account.
type Retry struct {
	Store     RetryStore
	Deliverer runner.Deliverer // tries as often as it is told to
	Token     runner.Token
	NoPayload bool
	Request   []byte // of the new dead letter, if it fails again
	Log       *slog.Logger
}

// Row sends one row again, under its id, and records what became of it. The
// error is the store's: ErrNoOutboxRow, ErrOutboxLeased, ErrUnavailable, …
func (r *Retry) Row(ctx context.Context, id int64, m runner.Message) (runner.DeliveryResult, error) {
	row, err := r.Store.LeaseFailed(ctx, id, r.Token, LeaseFor)
	if err != nil {
		return runner.DeliveryResult{}, err
	}
	stop := runner.KeepAlive(ctx, LeaseFor/3, func(ctx context.Context) { r.renew(ctx, id) })
	res := HTTP{r.Deliverer, m}.Publish(ctx, row)
	stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	owned, err := r.Store.Mark(ctx, r.Token, []runner.OutboxMark{r.mark(row, res)})
	switch {
	case err != nil:
		return res, fmt.Errorf("recording what became of %s: %w", row.EventID(), err)
	case !owned[0]:
		return res, fmt.Errorf("recording what became of %s: %w", row.EventID(), runner.ErrOutboxLeased)
	}
	return res, nil
}

func (r *Retry) mark(row runner.OutboxRow, res runner.DeliveryResult) runner.OutboxMark {
	m := runner.OutboxMark{ID: row.ID, LastError: res.LastError, Doubtful: res.Outcome == runner.InDoubt}
	switch {
	case res.Outcome == runner.Delivered:
		m.Verdict = runner.OutboxSent
	case res.Interrupted && res.Outcome == runner.Failed:
		m.Verdict = runner.OutboxBack // it stays a failed row
	default:
		m.Verdict = runner.OutboxDead
		m.DeadLetter = deadLetter(row, res, row.Attempts+res.Attempts, r.Request, r.NoPayload)
	}
	return m
}

// renew renews the lease of a row. A store that is away is no reason to stop
// what is being sent: the lease lasts for two more tries.
func (r *Retry) renew(ctx context.Context, id int64) {
	if _, err := r.Store.RenewLeases(ctx, r.Token, []int64{id}, LeaseFor); err != nil && ctx.Err() == nil {
		r.Log.Warn("renewing the lease of a row", "event", runner.OutboxEventID(id), "error", err)
	}
}
