package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// Settle implements runner.Claimer.
func (s *Store) Settle(ctx context.Context, req runner.SettleRequest) (answers []runner.SettleAnswer, err error) {
	if len(req.Settlements) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "recording outcomes", func(tx *sql.Tx) (err error) {
		answers, err = s.settle(ctx, tx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// settle records outcomes in tx.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, req runner.SettleRequest) ([]runner.SettleAnswer, error) {
	if err := s.guard(ctx, tx, req.Run); err != nil {
		return nil, err
	}
	sel, upd, err := prepare(ctx, tx, selectOwned, `update processed_events
		set outcome = ?2, finished_at = `+now+` where event_id = ?1`)
	if err != nil {
		return nil, err
	}
	who := owner{req.Token, req.Run}
	out := make([]runner.SettleAnswer, len(req.Settlements))
	for i, st := range req.Settlements {
		if out[i], err = who.settle(ctx, sel, st); err != nil {
			return nil, err
		}
		if out[i] != runner.Settled {
			continue
		}
		if _, err := upd.ExecContext(ctx, string(st.ID), string(st.Outcome)); err != nil {
			return nil, err
		}
		if err := replaceDeadLetter(ctx, tx, st); err != nil {
			return nil, fmt.Errorf("saving the dead letter of %q: %w", st.ID, err)
		}
	}
	return out, nil
}

// replaceDeadLetter resolves the dead letters that an event had, now that it
// has an outcome, and saves the new one.
func replaceDeadLetter(ctx context.Context, tx *sql.Tx, st runner.Settlement) error {
	resolution := string(st.Outcome)
	if st.DeadLetter != nil {
		resolution = "tried again"
	}
	_, err := tx.ExecContext(ctx, `update failed_jobs set resolved_at = `+now+`, resolution = ?2
		where event_id = ?1 and resolved_at is null and kind in ('send', 'claim')`, string(st.ID), resolution)
	if err != nil || st.DeadLetter == nil {
		return err
	}
	return insertDeadLetter(ctx, tx, st.DeadLetter)
}

// Turn implements runner.Turner.
func (s *Store) Turn(ctx context.Context, settle runner.SettleRequest, claim runner.ClaimRequest) (answers []runner.SettleAnswer, won []bool, err error) {
	list, err := idList(claim)
	if err != nil {
		return nil, nil, err
	}
	err = s.write(ctx, "recording outcomes and claiming", func(tx *sql.Tx) error {
		if answers, err = s.settle(ctx, tx, settle); err != nil {
			return err
		}
		if err := s.guard(ctx, tx, claim.Run); err != nil {
			return err
		}
		winners, err := s.claim(ctx, tx, claim, list)
		won = make([]bool, len(claim.IDs))
		markFirst(won, claim.IDs, winners)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return answers, won, nil
}

// GiveBack implements runner.Claimer.
func (s *Store) GiveBack(ctx context.Context, req runner.GiveBackRequest) ([]runner.SettleAnswer, error) {
	out := make([]runner.SettleAnswer, len(req.IDs))
	if len(out) == 0 {
		return out, nil
	}
	who := owner{req.Token, req.Run}
	err := s.write(ctx, "giving claims back", func(tx *sql.Tx) error {
		if err := s.guard(ctx, tx, req.Run); err != nil {
			return err
		}
		sel, del, err := prepare(ctx, tx, selectOwned, "delete from processed_events where event_id = ?1")
		if err != nil {
			return err
		}
		for i, id := range req.IDs {
			if out[i], err = who.giveBack(ctx, sel, id); err != nil {
				return err
			}
			if out[i] != runner.Settled {
				continue
			}
			if _, err := del.ExecContext(ctx, string(id)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// prepare prepares two statements, which live as long as tx.
func prepare(ctx context.Context, tx *sql.Tx, first, second string) (a, b *sql.Stmt, err error) {
	if a, err = tx.PrepareContext(ctx, first); err != nil {
		return nil, nil, err
	}
	b, err = tx.PrepareContext(ctx, second)
	return a, b, err
}

const selectOwned = `select coalesce(token, ''), coalesce(run_id, 0), coalesce(outcome, '')
	from processed_events where event_id = ?1`

// owner is who asks: whatever is set must be the claim's.
type owner struct {
	token runner.Token
	run   *runner.Run
}

// look reads the outcome of the claim of id and whether it is the owner's.
func (o owner) look(ctx context.Context, sel *sql.Stmt, id runner.EventID) (outcome runner.Outcome, mine bool, err error) {
	var token runner.Token
	var runID int64
	if err := sel.QueryRowContext(ctx, string(id)).Scan(&token, &runID, &outcome); err != nil {
		return "", false, err
	}
	mine = (o.token == "" || o.token == token) && (o.run == nil || o.run.ID == runID)
	return outcome, mine, nil
}

// settle answers whether the outcome may be recorded.
func (o owner) settle(ctx context.Context, sel *sql.Stmt, st runner.Settlement) (runner.SettleAnswer, error) {
	outcome, mine, err := o.look(ctx, sel, st.ID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return runner.NotClaimed, nil
	case err != nil:
		return 0, err
	case !mine:
		return runner.NotOwner, nil
	case outcome == st.Outcome:
		return runner.AlreadySettled, nil
	case outcome == "" || outcome == runner.InDoubt:
		return runner.Settled, nil
	}
	return runner.NotOwner, nil
}

// giveBack answers whether the claim may be deleted.
func (o owner) giveBack(ctx context.Context, sel *sql.Stmt, id runner.EventID) (runner.SettleAnswer, error) {
	outcome, mine, err := o.look(ctx, sel, id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return runner.NotClaimed, nil
	case err != nil:
		return 0, err
	case !mine:
		return runner.NotOwner, nil
	case outcome == runner.Delivered:
		return runner.AlreadySettled, nil
	}
	return runner.Settled, nil
}

// Renew implements runner.Renewer.
func (s *Store) Renew(ctx context.Context, ids []runner.EventID, token runner.Token, d time.Duration) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return 0, fmt.Errorf("renewing claims: %w", err)
	}
	var n int64
	err = s.write(ctx, "renewing claims", func(tx *sql.Tx) error {
		if err := s.guard(ctx, tx, nil); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `update processed_events set expires_at = `+later("?3")+`
			where event_id in (select value from json_each(?1))
			and token = ?2 and outcome is null and expires_at is not null`, string(list), string(token), modifier(d))
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return int(n), err
}
