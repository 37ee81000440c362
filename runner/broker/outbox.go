package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/oncectl/oncectl/runner"
)

// outboxBody is the body of POST /outbox.
type outboxBody struct {
	Topic   string          `json:"topic"`
	Key     string          `json:"key,omitempty"`
	Payload json.RawMessage `json:"payload"`
	Token   runner.Token    `json:"token,omitempty"`
}

type outboxAnswer struct {
	ID      int64          `json:"id"`
	EventID runner.EventID `json:"event_id"`
}

// addToOutbox adds under one token, also where the addition is made again.
func (s *Server) addToOutbox(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b outboxBody
	if err := s.parse(w, r, maxBody, &b); err != nil {
		return 0, nil, err
	}
	if b.Token == "" {
		b.Token = runner.NewToken()
	}
	if err := checkToken(b.Token); err != nil {
		return 0, nil, err
	}
	entry := runner.OutboxEntry{Topic: b.Topic, Key: b.Key, Payload: b.Payload, Token: b.Token}
	if err := entry.Check(); err != nil {
		return 0, nil, err
	}
	var answer outboxAnswer
	err := s.call(r, func(p pass) error {
		box, ok := p.claimer.(runner.OutboxAdder)
		if !ok {
			return fmt.Errorf("adding to the outbox: %w", errUnsupported)
		}
		var err error
		answer.ID, err = box.AddToOutbox(s.working, entry)
		answer.EventID = runner.OutboxEventID(answer.ID)
		return err
	})
	return http.StatusOK, answer, err
}

var _ runner.OutboxAdder = (*Client)(nil)

// AddToOutbox implements runner.OutboxAdder.
func (c *Client) AddToOutbox(ctx context.Context, e runner.OutboxEntry) (int64, error) {
	if err := e.Check(); err != nil {
		return 0, err
	}
	var answer outboxAnswer
	body := outboxBody{Topic: e.Topic, Key: e.Key, Payload: e.Payload, Token: e.Token}
	err := c.call(ctx, "/outbox", maxBody, body, &answer)
	return answer.ID, err
}
