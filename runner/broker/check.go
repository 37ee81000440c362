package broker

import (
	"fmt"
	"strings"

	"github.com/oncectl/oncectl/runner"
)

// checkGiven refuses a request that leaves out what it is about: a program that
// misnames or loses its list must not be told that all is well.
func checkGiven[T any](what string, list []T) error {
	if list == nil {
		return fmt.Errorf("%w: there are no %s in the body", runner.ErrInvalid, what)
	}
	return nil
}

func checkIDs(ids []runner.EventID) error {
	for i, id := range ids {
		if _, err := runner.ParseEventID(string(id)); err != nil {
			return fmt.Errorf("id %d of %d: %w", i+1, len(ids), err)
		}
	}
	return nil
}

func checkSettled(all []runner.Settlement) error {
	for _, s := range all {
		if _, err := runner.ParseEventID(string(s.ID)); err != nil {
			return err
		}
	}
	return nil
}

// checkToken accepts a UUID in its text form, or none.
func checkToken(t runner.Token) error {
	const form = "00000000-0000-0000-0000-000000000000"
	if t == "" {
		return nil
	}
	ok := len(t) == len(form)
	for i := 0; ok && i < len(t); i++ {
		ok = t[i] == form[i] || form[i] == '0' && isHex(t[i])
	}
	if !ok {
		return fmt.Errorf("%w: the token is not a UUID", runner.ErrInvalid)
	}
	return nil
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// checkHash accepts lower-case hex SHA-256, or none.
func checkHash(h string) error {
	ok := h == "" || len(h) == 64
	for i := 0; ok && i < len(h); i++ {
		ok = isHex(h[i])
	}
	if !ok {
		return fmt.Errorf("%w: a payload hash is not a lower-case hex SHA-256", runner.ErrInvalid)
	}
	return nil
}

// checkText bounds what is stored for people to read.
func checkText(what, s string) error {
	if len(s) > runner.MaxIDBytes || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return fmt.Errorf("%w: the %s has more than %d bytes or a control character", runner.ErrInvalid, what, runner.MaxIDBytes)
	}
	return nil
}

func checkOutcome(o runner.Outcome) error {
	switch o {
	case runner.Delivered, runner.Failed, runner.InDoubt:
		return nil
	}
	return fmt.Errorf("%w: outcome %q is none of delivered, failed, in_doubt", runner.ErrInvalid, o)
}

func (b claimBody) check() error {
	if err := checkGiven("ids", b.IDs); err != nil {
		return err
	}
	if err := checkIDs(b.IDs); err != nil {
		return err
	}
	if err := checkToken(b.Token); err != nil {
		return err
	}
	if n := len(b.PayloadHashes); n != 0 && n != len(b.IDs) {
		return fmt.Errorf("%w: %d payload_hashes for %d ids", runner.ErrInvalid, n, len(b.IDs))
	}
	if n := len(b.Targets); n != 0 && n != len(b.IDs) {
		return fmt.Errorf("%w: %d targets for %d ids", runner.ErrInvalid, n, len(b.IDs))
	}
	for _, h := range b.PayloadHashes {
		if err := checkHash(h); err != nil {
			return err
		}
	}
	for _, t := range b.Targets {
		if err := checkText("target", t); err != nil {
			return err
		}
	}
	return checkText("owner", b.Owner)
}

func (b settleBody) check() error {
	if err := checkGiven("settlements", b.Settlements); err != nil {
		return err
	}
	if err := checkToken(b.Token); err != nil {
		return err
	}
	for i, s := range b.Settlements {
		if err := s.check(); err != nil {
			return fmt.Errorf("settlement %d of %d: %w", i+1, len(b.Settlements), err)
		}
	}
	return nil
}

func (s settlement) check() error {
	if _, err := runner.ParseEventID(string(s.ID)); err != nil {
		return err
	}
	if err := checkOutcome(s.Outcome); err != nil {
		return err
	}
	if s.DeadLetter == nil {
		return nil
	}
	return s.DeadLetter.check()
}

func (d deadLetter) check() error {
	switch {
	case d.Kind != runner.KindClaim && d.Kind != runner.KindSend && d.Kind != runner.KindOutbox && d.Kind != runner.KindRun:
		return fmt.Errorf("%w: dead letter of kind %q", runner.ErrInvalid, d.Kind)
	case d.Certainty != runner.Failed && d.Certainty != runner.InDoubt:
		return fmt.Errorf("%w: dead letter of certainty %q", runner.ErrInvalid, d.Certainty)
	case d.LastError == "":
		return fmt.Errorf("%w: dead letter without last_error", runner.ErrInvalid)
	case d.Attempts < 0:
		return fmt.Errorf("%w: dead letter with %d attempts", runner.ErrInvalid, d.Attempts)
	case len(d.Payload) > runner.MaxBodyBytes:
		return fmt.Errorf("%w: dead letter with a payload of %d bytes, the limit is %d", runner.ErrInvalid, len(d.Payload), runner.MaxBodyBytes)
	}
	if d.EventID != "" {
		if _, err := runner.ParseEventID(string(d.EventID)); err != nil {
			return err
		}
	}
	if err := checkHash(d.PayloadHash); err != nil {
		return err
	}
	return checkText("name", d.Name)
}
