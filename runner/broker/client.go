package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// Client makes the claims of a job through the run above it. It satisfies the
// same interfaces as a store. Its methods may be called at the same time, each
// call then has a connection of its own.
//
// All fail with runner.ErrUnavailable when the run is gone, with what the run
// says otherwise, and with the context's error when that is done: what was
// asked for may then have been done.
type Client struct {
	path string
	pool pool
}

var (
	_ runner.ClaimRenewer = (*Client)(nil)
	_ runner.Turner       = (*Client)(nil)
	_ runner.SendStore    = (*Client)(nil)
)

// Dial returns a client of the socket at path. It connects when it has to.
func Dial(path string) *Client { return &Client{path: path} }

// Close closes the connections. Calls at work end by themselves.
func (c *Client) Close() error {
	c.pool.close()
	return nil
}

// call asks the run above and reads its answer into out.
func (c *Client) call(ctx context.Context, path string, limit int, in, out any) error {
	e, err := c.begin(ctx, path, limit, in)
	if err != nil {
		return err
	}
	body, err := e.finish()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("reading the answer of the oncectl run above: %w: %w", runner.ErrUndecided, err)
	}
	return nil
}

// begin sends a request and reads the head of the answer.
func (c *Client) begin(ctx context.Context, path string, limit int, in any) (*exchange, error) {
	body, err := encode(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", runner.ErrInvalid, err)
	}
	if len(body) > limit {
		return nil, fmt.Errorf("%w: asking the oncectl run above: %d bytes, the limit is %d", runner.ErrInvalid, len(body), limit)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	e := &exchange{client: c, ctx: ctx}
	if e.conn, err = c.connect(ctx); err != nil {
		return nil, e.gone(err)
	}
	e.stop = context.AfterFunc(ctx, func() { e.conn.Close() })
	if e.resp, err = e.conn.roundTrip(path, body); err != nil {
		e.abandon()
		return nil, e.gone(err)
	}
	return e, nil
}

func (c *Client) connect(ctx context.Context) (*connection, error) {
	if conn := c.pool.get(); conn != nil {
		return conn, nil
	}
	raw, err := dialAt(ctx, c.path)
	if err != nil {
		return nil, err
	}
	return newConnection(raw), nil
}

// Claim implements runner.Claimer. req.Run is not sent: the run above claims.
func (c *Client) Claim(ctx context.Context, req runner.ClaimRequest) ([]bool, error) {
	if err := checkIDs(req.IDs); err != nil {
		return nil, err
	}
	var answer claimAnswer
	if err := c.call(ctx, "/claim", maxBody, encodeClaimRequest(req), &answer); err != nil {
		return nil, err
	}
	return answer.Won, checkCount(len(answer.Won), len(req.IDs))
}

func checkCount(got, want int) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%w: the oncectl run above answered %d of %d", runner.ErrUndecided, got, want)
}

// Settle implements runner.Claimer. Where the dead letters are too much for one
// request, it makes several: then each of them is one transaction.
func (c *Client) Settle(ctx context.Context, req runner.SettleRequest) ([]runner.SettleAnswer, error) {
	answers := make([]runner.SettleAnswer, 0, len(req.Settlements))
	for part := range settleParts(req.Settlements) {
		got, err := c.settlePart(ctx, runner.SettleRequest{Settlements: part, Token: req.Token})
		if err != nil {
			return nil, err
		}
		answers = append(answers, got...)
	}
	return answers, nil
}

func (c *Client) settlePart(ctx context.Context, req runner.SettleRequest) ([]runner.SettleAnswer, error) {
	if err := checkSettled(req.Settlements); err != nil {
		return nil, err
	}
	var answer settleAnswer
	if err := c.call(ctx, "/settle", maxSettle, encodeSettleRequest(req), &answer); err != nil {
		return nil, err
	}
	answers, err := decodeAnswers(answer.Answers)
	if err != nil {
		return nil, err
	}
	return answers, checkCount(len(answers), len(req.Settlements))
}

// GiveBack implements runner.Claimer.
func (c *Client) GiveBack(ctx context.Context, req runner.GiveBackRequest) ([]runner.SettleAnswer, error) {
	if err := checkIDs(req.IDs); err != nil {
		return nil, err
	}
	var answer settleAnswer
	if err := c.call(ctx, "/release", maxBody, idsBody{IDs: some(req.IDs), Token: req.Token}, &answer); err != nil {
		return nil, err
	}
	answers, err := decodeAnswers(answer.Answers)
	if err != nil {
		return nil, err
	}
	return answers, checkCount(len(answers), len(req.IDs))
}

// Renew implements runner.Renewer.
func (c *Client) Renew(ctx context.Context, ids []runner.EventID, token runner.Token, d time.Duration) (int, error) {
	if err := checkIDs(ids); err != nil {
		return 0, err
	}
	var answer renewAnswer
	err := c.call(ctx, "/renew", maxBody, idsBody{IDs: some(ids), Token: token, Expires: lifetime(d)}, &answer)
	return answer.Renewed, err
}

// Lookup returns the claims that exist among ids, as runner.ClaimReader's does.
func (c *Client) Lookup(ctx context.Context, ids []runner.EventID) ([]runner.Claim, error) {
	if err := checkIDs(ids); err != nil {
		return nil, err
	}
	var answer lookupAnswer
	if err := c.call(ctx, "/lookup", maxBody, idsBody{IDs: some(ids)}, &answer); err != nil {
		return nil, err
	}
	claims := make([]runner.Claim, len(answer.Claims))
	for i, found := range answer.Claims {
		claims[i] = found.claim()
	}
	return claims, nil
}

// Turn implements runner.Turner, in one round trip unless the dead letters are
// too much for one request.
func (c *Client) Turn(ctx context.Context, settle runner.SettleRequest, claim runner.ClaimRequest) ([]runner.SettleAnswer, []bool, error) {
	if err := errors.Join(checkSettled(settle.Settlements), checkIDs(claim.IDs)); err != nil {
		return nil, nil, err
	}
	if payloads(settle.Settlements)+claimSize(claim) > partSize {
		answers, err := c.Settle(ctx, settle)
		if err != nil {
			return nil, nil, err
		}
		won, err := c.Claim(ctx, claim)
		return answers, won, err
	}
	var answer turnAnswer
	body := turnBody{Settle: encodeSettleRequest(settle), Claim: encodeClaimRequest(claim)}
	if err := c.call(ctx, "/turn", maxSettle, body, &answer); err != nil {
		return nil, nil, err
	}
	answers, err := decodeAnswers(answer.Answers)
	if err != nil {
		return nil, nil, err
	}
	if err := checkCount(len(answers), len(settle.Settlements)); err != nil {
		return nil, nil, err
	}
	return answers, answer.Won, checkCount(len(answer.Won), len(claim.IDs))
}
