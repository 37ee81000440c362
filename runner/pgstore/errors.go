package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncectl/oncectl/runner"
)

// SQLSTATEs that are told apart (PostgreSQL manual, appendix "Error Codes").
const (
	stateNotSupported    = "0A000"
	stateReadOnly        = "25006"
	stateNoPassword      = "28P01"
	stateNoAccess        = "28000"
	stateNoDatabase      = "3D000"
	stateNoSchema        = "3F000"
	stateSerialization   = "40001"
	stateDeadlock        = "40P01"
	stateNoRight         = "42501"
	stateNoColumn        = "42703"
	stateNoTable         = "42P01"
	stateTooMany         = "53300"
	stateLockTimeout     = "55P03"
	stateCanceled        = "57014"
	stateShutdown        = "57P01"
	stateCrashShutdown   = "57P02"
	stateCannotConnect   = "57P03"
	stateIdleInTx        = "25P03"
	stateIdleSession     = "57P05"
	classConnection      = "08"
	stateTransactionTime = "25P04"
)

// transient marks an error that another try may mend, whatever it is.
type transient struct{ error }

func (t transient) Unwrap() error { return t.error }

// told marks an error that translate has put into words: it is not translated
// or tried again on its way out.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

// sqlState is the SQLSTATE of err; empty if a server did not send it.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// isMissing reports that tables, or columns of a newer version, are not there.
func isMissing(err error) bool {
	switch sqlState(err) {
	case stateNoTable, stateNoSchema, stateNoColumn:
		return true
	}
	return false
}

// isTransient reports whether another try may mend err. Without an SQLSTATE it
// is the network's or the resolver's.
func isTransient(err error) bool {
	var marked transient
	var final told
	switch {
	case err == nil, errors.As(err, &final):
		return false
	case errors.As(err, &marked):
		return true
	case errors.Is(err, runner.ErrRefused), errors.Is(err, runner.ErrFenced), errors.Is(err, runner.ErrInvalid),
		errors.Is(err, runner.ErrUndecided), errors.Is(err, runner.ErrDone), errors.Is(err, runner.ErrBusy),
		errors.Is(err, runner.ErrNoDeadLetter), errors.Is(err, runner.ErrUnavailable), errors.Is(err, errCallback{}):
		return false
	}
	switch state := sqlState(err); state {
	case "":
		return !errors.Is(err, context.Canceled)
	case stateSerialization, stateDeadlock, stateTooMany, stateShutdown, stateCrashShutdown,
		stateCannotConnect, stateIdleInTx, stateIdleSession, stateTransactionTime:
		return true
	default:
		return strings.HasPrefix(state, classConnection)
	}
}

// standby is err, or errStandby for another try where the server refused to
// write because it is in recovery: the pooler or the name may lead elsewhere
// next time. A hot standby has two such errors, one for "begin … read write".
func standby(ctx context.Context, c conn, err error) error {
	switch sqlState(err) {
	case stateReadOnly, stateNotSupported:
	default:
		return err
	}
	rollback(c)
	results, asked := pipeline(ctx, c, statement{sql: "select pg_is_in_recovery()"})
	switch {
	case asked != nil:
		return asked
	case results[0][0].bool(0):
		return transient{errStandby}
	}
	return err
}

// errCallback marks an error of the caller's own function, which comes back as
// it is.
type errCallback struct{ error }

func (errCallback) Is(target error) bool { _, ok := target.(errCallback); return ok }
func (e errCallback) Unwrap() error      { return e.error }

// translate turns a driver's error into one of package runner's, by SQLSTATE.
func (s *Store) translate(err error) error {
	var own errCallback
	var final told
	switch {
	case errors.As(err, &own):
		return own.error
	case errors.As(err, &final):
		return err
	}
	state := sqlState(err)
	var unfit refusal
	switch {
	case len(hosts(s.parsed)) == 1 && errors.As(err, &unfit): // of several, each says why not
		return fmt.Errorf("PostgreSQL at %s: %w", strings.Join(hosts(s.parsed), ", "), unfit.error)
	case err == nil, errors.Is(err, runner.ErrRefused), errors.Is(err, runner.ErrFenced), errors.Is(err, runner.ErrInvalid),
		errors.Is(err, runner.ErrUndecided), errors.Is(err, runner.ErrDone), errors.Is(err, runner.ErrBusy),
		errors.Is(err, runner.ErrNoDeadLetter), errors.Is(err, runner.ErrUnavailable), errors.Is(err, runner.ErrLockLost):
		return err
	case state == stateLockTimeout:
		return fmt.Errorf("%w: another program's open transaction has held it for %v", runner.ErrUndecided, runner.ClaimPatience)
	case state == stateCanceled:
		return fmt.Errorf("%w: it took too long, or somebody cancelled it: %s", runner.ErrUndecided, s.describe(err))
	case state == stateReadOnly:
		return fmt.Errorf("%w: PostgreSQL at %s: %s", runner.ErrRefused, strings.Join(hosts(s.parsed), ", "), s.describe(err))
	case state == stateNoRight:
		return fmt.Errorf("%w: %s: have an owner run 'oncectl schema apply', or give them the output of 'oncectl schema print', and grant this role the use of schema %s and its tables", runner.ErrRefused, s.describe(err), s.schema)
	case isTransient(err), state == stateNoPassword, state == stateNoAccess, state == stateNoDatabase:
		return fmt.Errorf("%w: PostgreSQL at %s: %s", runner.ErrUnavailable, strings.Join(hosts(s.parsed), ", "), s.describe(err))
	case errors.Is(err, context.Canceled):
		return err
	}
	return told{fmt.Errorf("PostgreSQL at %s: %s", strings.Join(hosts(s.parsed), ", "), s.describe(err))}
}

// describe is the sentence in err that helps, without the connection string
// that pgconn's errors begin with.
func (s *Store) describe(err error) string {
	var pg *pgconn.PgError
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, errStandby):
		return errStandby.Error()
	case errors.As(err, &pg):
		return fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
	case errors.As(err, &dns):
		return dns.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &op):
		return op.Error()
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) && connect.Unwrap() != nil {
		return connect.Unwrap().Error()
	}
	return err.Error()
}
