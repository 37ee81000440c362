package broker

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// What is at work in a store is not ended by its caller's death: a query that
// is cancelled closes its connection, and with it goes the run's lock. So the
// endpoints work in s.working, and wait in the caller's context.

func (s *Server) claim(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b claimBody
	if err := s.parse(w, r, maxBody, &b); err != nil {
		return 0, nil, err
	}
	var answer claimAnswer
	err := s.makeClaim(r, b, &answer)
	return http.StatusOK, answer, err
}

// makeClaim claims under one token, also where the claim is made again.
func (s *Server) makeClaim(r *http.Request, b claimBody, answer *claimAnswer) error {
	if b.Token == "" {
		b.Token = runner.NewToken()
	}
	return s.call(r, func(p pass) error {
		req, err := b.request(&p.run)
		if err != nil {
			return err
		}
		answer.Token = req.Token
		answer.Won, err = p.claimer.Claim(s.working, req)
		return err
	})
}

// claimOne answers by its status.
func (s *Server) claimOne(id runner.EventID) endpoint {
	return func(w http.ResponseWriter, r *http.Request) (int, any, error) {
		b, err := claimOfQuery(r.URL.RawQuery)
		if err == nil {
			err = s.noBody(w, r)
		}
		if err != nil {
			return 0, nil, err
		}
		b.IDs = []runner.EventID{id}
		var answer claimAnswer
		if err := s.makeClaim(r, b, &answer); err != nil {
			return 0, nil, err
		}
		if !answer.Won[0] {
			return conflict("the event is already claimed")
		}
		return http.StatusOK, oneClaimAnswer{Won: true, Token: answer.Token}, nil
	}
}

func conflict(message string) (int, any, error) {
	return http.StatusConflict, errorBody{Code: codeConflict, Message: message}, nil
}

func claimOfQuery(query string) (b claimBody, err error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return b, fmt.Errorf("%w: the query: %w", runner.ErrInvalid, err)
	}
	for name, values := range q {
		value := values[0]
		switch {
		case len(values) > 1:
			err = fmt.Errorf("%w: the query has %s twice", runner.ErrInvalid, name)
		case name == "expires":
			if e := b.Expires.UnmarshalText([]byte(value)); e != nil {
				err = fmt.Errorf("%w: expires: %w", runner.ErrInvalid, e)
			}
		case name == "owner":
			b.Owner = value
		case name == "token":
			b.Token = runner.Token(value)
		default:
			err = fmt.Errorf("%w: the query has %q, which is none of expires, owner, token", runner.ErrInvalid, name)
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// noBody reads r to its end, so that the death of its caller is noticed.
func (s *Server) noBody(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r, maxBody)
	if err == nil && len(body) > 0 {
		err = fmt.Errorf("%w: the id is in the path, so that there is no place for a body", runner.ErrInvalid)
	}
	return err
}

// parseIDs reads a body of ids, of which the fields that allow has may be there.
func (s *Server) parseIDs(w http.ResponseWriter, r *http.Request, allow idsBody) (b idsBody, err error) {
	if err := s.parse(w, r, maxBody, &b); err != nil {
		return b, err
	}
	switch {
	case b.Token != "" && allow.Token == "":
		return b, fmt.Errorf("%w: there is no place for a token", runner.ErrInvalid)
	case b.Outcome != "" && allow.Outcome == "":
		return b, fmt.Errorf("%w: there is no place for an outcome", runner.ErrInvalid)
	case b.Expires != 0 && allow.Expires == 0:
		return b, fmt.Errorf("%w: there is no place for expires", runner.ErrInvalid)
	}
	if err := checkGiven("ids", b.IDs); err != nil {
		return b, err
	}
	if err := checkToken(b.Token); err != nil {
		return b, err
	}
	return b, checkIDs(b.IDs)
}

func (s *Server) finish(w http.ResponseWriter, r *http.Request) (int, any, error) {
	b, err := s.parseIDs(w, r, idsBody{Token: "may", Outcome: "may"})
	if err != nil {
		return 0, nil, err
	}
	if b.Outcome == "" {
		b.Outcome = runner.Delivered
	}
	body := settleBody{Token: b.Token, Settlements: make([]settlement, 0, len(b.IDs))}
	for _, id := range b.IDs {
		body.Settlements = append(body.Settlements, settlement{ID: id, Outcome: b.Outcome})
	}
	return s.record(r, body)
}

func (s *Server) settle(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b settleBody
	if err := s.parse(w, r, maxSettle, &b); err != nil {
		return 0, nil, err
	}
	return s.record(r, b)
}

func (s *Server) record(r *http.Request, b settleBody) (int, any, error) {
	var answers []runner.SettleAnswer
	err := s.call(r, func(p pass) error {
		req, err := b.request(&p.run)
		if err != nil {
			return err
		}
		answers, err = p.claimer.Settle(s.working, req)
		return err
	})
	return http.StatusOK, settleAnswer{encodeAnswers(answers)}, err
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) (int, any, error) {
	b, err := s.parseIDs(w, r, idsBody{Token: "may"})
	if err != nil {
		return 0, nil, err
	}
	answers, err := s.giveBack(r, b)
	return http.StatusOK, settleAnswer{encodeAnswers(answers)}, err
}

func (s *Server) giveBack(r *http.Request, b idsBody) (answers []runner.SettleAnswer, err error) {
	err = s.call(r, func(p pass) error {
		answers, err = p.claimer.GiveBack(s.working, runner.GiveBackRequest{IDs: b.IDs, Token: b.Token, Run: &p.run})
		return err
	})
	return answers, err
}

func (s *Server) finishOne(id runner.EventID) endpoint {
	return func(w http.ResponseWriter, r *http.Request) (int, any, error) {
		if err := s.noBody(w, r); err != nil {
			return 0, nil, err
		}
		status, answer, err := s.record(r, settleBody{Settlements: []settlement{{ID: id, Outcome: runner.Delivered}}})
		if err != nil {
			return 0, nil, err
		}
		switch answer.(settleAnswer).Answers[0] {
		case "not_owner":
			return conflict("the claim belongs to somebody else, or has another outcome")
		case "not_claimed":
			return conflict("the event is not claimed")
		}
		return status, answer, nil
	}
}

func (s *Server) releaseOne(id runner.EventID) endpoint {
	return func(w http.ResponseWriter, r *http.Request) (int, any, error) {
		if err := s.noBody(w, r); err != nil {
			return 0, nil, err
		}
		answers, err := s.giveBack(r, idsBody{IDs: []runner.EventID{id}})
		if err != nil {
			return 0, nil, err
		}
		switch answers[0] {
		case runner.NotOwner:
			return conflict("the claim belongs to somebody else")
		case runner.NotClaimed:
			return conflict("the event is not claimed")
		case runner.AlreadySettled:
			return conflict("the event was delivered, so that it stays claimed")
		}
		return http.StatusOK, settleAnswer{encodeAnswers(answers)}, nil
	}
}

func (s *Server) renew(w http.ResponseWriter, r *http.Request) (int, any, error) {
	b, err := s.parseIDs(w, r, idsBody{Token: "must", Expires: 1})
	switch {
	case err != nil:
		return 0, nil, err
	case b.Token == "" || b.Expires <= 0:
		return 0, nil, fmt.Errorf("%w: to renew a claim takes its token and a new expires", runner.ErrInvalid)
	}
	var answer renewAnswer
	err = s.call(r, func(p pass) error {
		c, ok := p.claimer.(runner.Renewer)
		if !ok {
			return fmt.Errorf("renewing: %w", errUnsupported)
		}
		var err error
		answer.Renewed, err = c.Renew(s.working, b.IDs, b.Token, time.Duration(b.Expires))
		return err
	})
	return http.StatusOK, answer, err
}

// looker is a part of runner.ClaimReader.
type looker interface {
	Lookup(ctx context.Context, ids []runner.EventID) ([]runner.Claim, error)
}

func (s *Server) lookup(w http.ResponseWriter, r *http.Request) (int, any, error) {
	b, err := s.parseIDs(w, r, idsBody{})
	if err != nil {
		return 0, nil, err
	}
	answer := lookupAnswer{Claims: []claim{}}
	err = s.call(r, func(p pass) error {
		c, ok := p.claimer.(looker)
		if !ok {
			return fmt.Errorf("looking up claims: %w", errUnsupported)
		}
		found, err := c.Lookup(s.working, b.IDs)
		for _, f := range found {
			answer.Claims = append(answer.Claims, encodeClaim(f))
		}
		return err
	})
	return http.StatusOK, answer, err
}

func (s *Server) turn(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b turnBody
	if err := s.parse(w, r, maxSettle, &b); err != nil {
		return 0, nil, err
	}
	if b.Claim.Token == "" {
		b.Claim.Token = runner.NewToken()
	}
	answer := turnAnswer{Token: b.Claim.Token}
	err := s.call(r, func(p pass) error {
		settle, err := b.Settle.request(&p.run)
		if err != nil {
			return err
		}
		claim, err := b.Claim.request(&p.run)
		if err != nil {
			return err
		}
		answers, won, err := s.turnOver(p.claimer, settle, claim)
		answer.Answers, answer.Won = encodeAnswers(answers), won
		return err
	})
	return http.StatusOK, answer, err
}

// turnOver settles first and then claims, where the store cannot do both at
// once: a crash in between leaves less unfinished, not more.
func (s *Server) turnOver(c runner.Claimer, settle runner.SettleRequest, claim runner.ClaimRequest) ([]runner.SettleAnswer, []bool, error) {
	if t, ok := c.(runner.Turner); ok {
		return t.Turn(s.working, settle, claim)
	}
	answers, err := c.Settle(s.working, settle)
	if err != nil {
		return nil, nil, err
	}
	won, err := c.Claim(s.working, claim)
	return answers, won, err
}

func (s *Server) run(w http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := s.noBody(w, r); err != nil {
		return 0, nil, err
	}
	var answer runAnswer
	err := s.call(r, func(p pass) error {
		answer = encodeRun(p.run)
		return nil
	})
	return http.StatusOK, answer, err
}
