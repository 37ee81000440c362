package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// feedbackTimeout bounds the report of how a request went. It is worth no more:
// the slot is free without it.
const feedbackTimeout = 10 * time.Second

// Gate returns the gate that all sends of the run above share.
func (c *Client) Gate() runner.SendGate { return remoteGate{c} }

type remoteGate struct{ client *Client }

// Acquire implements runner.SendGate. Its errors are Client's, too.
func (g remoteGate) Acquire(ctx context.Context, host string, patience time.Duration) (runner.SendPermit, error) {
	d := duration(max(patience, 0))
	e, err := g.client.begin(ctx, "/slot", maxBody, slotBody{Host: host, Patience: &d})
	if err != nil {
		return nil, err
	}
	if e.resp.StatusCode != http.StatusOK {
		if _, err := e.finish(); err != nil {
			return nil, err
		}
	}
	p := &remotePermit{exchange: e}
	line, err := bufio.NewReader(e.resp.Body).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.slot)
	}
	if err != nil {
		e.abandon()
		return nil, e.gone(fmt.Errorf("reading the slot: %w", err))
	}
	// From here on the permit is the caller's, whatever becomes of ctx.
	if !e.stop() {
		e.conn.Close()
		return nil, context.Cause(ctx)
	}
	return p, nil
}

// remotePermit holds its slot by its connection, which a process that dies
// closes.
type remotePermit struct {
	*exchange
	slot slotAnswer
}

// Delivered implements runner.SendPermit.
func (p *remotePermit) Delivered() uint64 { return p.slot.Delivered }

// Done implements runner.SendPermit. Where the run above is gone it returns the
// number that it had.
func (p *remotePermit) Done(f runner.Feedback) uint64 {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), feedbackTimeout)
	defer cancel()
	var answer feedbackAnswer
	if err := p.client.call(ctx, "/slot/"+p.slot.Slot+"/done", maxBody, encodeFeedback(f), &answer); err != nil {
		p.conn.Close()
		return p.slot.Delivered
	}
	p.ctx, p.stop = ctx, context.AfterFunc(ctx, func() { p.conn.Close() })
	_, _ = p.finish() // the slot is free, and this only keeps its connection
	return answer.Delivered
}
