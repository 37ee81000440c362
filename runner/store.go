package runner

import "context"

// Store is a place where locks, claims, runs and dead letters live. Commands
// ask for the narrowest of these interfaces that they need.
type Store interface {
	Locker
	Claimer
	Renewer
	ClaimReader
	// Close gives back what the store holds. Locks are released before.
	Close() error
}

// SchemaStatus says what schema a store has.
type SchemaStatus struct {
	Version      int // 0: no tables yet
	OldestBinary int
	Binary       int // the version that this binary knows
}

// SchemaKeeper keeps a store's tables. Errors: ErrUnavailable, ErrRefused.
type SchemaKeeper interface {
	SchemaStatus(ctx context.Context) (SchemaStatus, error)
	// ApplySchema creates or changes the tables up to this binary's version.
	ApplySchema(ctx context.Context) (SchemaStatus, error)
}
