package runner

import "errors"

// The errors on which a caller decides. Adapters wrap them with what was being
// done; errors.Is finds them.
var (
	// ErrBusy says that another run holds the lock.
	ErrBusy = errors.New("the lock is held by another run")

	// ErrDone says that a run of this lock and key has already succeeded.
	ErrDone = errors.New("a run of this key has already succeeded")

	// ErrUnavailable says that the store could not be reached within the time
	// that was given (--store-wait). It is neither "busy" nor "claimed".
	ErrUnavailable = errors.New("the store cannot be reached")

	// ErrRefused says that the store was reached but cannot keep oncectl's
	// promises: a hot standby, a server that is too old, a file on a network
	// file system, a schema for newer binaries, a role without rights.
	ErrRefused = errors.New("the store is refused")

	// ErrUndecided says that the store did not answer whether a claim was won,
	// for instance because another program's open transaction holds the id.
	ErrUndecided = errors.New("the claim is undecided")

	// ErrFenced says that the caller's run no longer owns its lock: another
	// run holds the fence, so nothing was written.
	ErrFenced = errors.New("the run no longer holds its lock")

	// ErrLockLost says that the lock went away while it was held.
	ErrLockLost = errors.New("the lock was lost")

	// ErrInvalid says that the caller's input breaks a stated rule.
	ErrInvalid = errors.New("invalid input")

	// ErrOtherPayload says that an event was claimed with another payload: a
	// fault of the caller, who gave two messages one id.
	ErrOtherPayload = errors.New("the event id was used with another payload")

	// ErrNoDeadLetter says that there is no dead letter of that id.
	ErrNoDeadLetter = errors.New("there is no such dead letter")

	// ErrNotExecutable and ErrNotFound say why a command did not start.
	ErrNotExecutable = errors.New("the command cannot be executed")
	ErrNotFound      = errors.New("the command is not found")
)
