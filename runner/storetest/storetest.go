// Package storetest is the conformance suite of oncectl's stores: what it
// tests is what every implementation of runner.Store must do, so that commands
// need not care which one they talk to. One file a capability.
package storetest

import (
	"database/sql"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// Store is what the suite tests.
type Store interface {
	runner.Store
	runner.SchemaKeeper
	runner.Turner
	runner.Sweeper
	runner.DeadLetters
	runner.Outbox
	runner.History
	runner.Pruner
}

// Harness makes stores to test.
type Harness interface {
	// Fresh returns a new, empty place for a store: no tables, no rows. What it
	// made is removed when t ends.
	Fresh(t testing.TB) Place
}

// Place is where one store lives.
type Place interface {
	// Open returns a handle as a process of its own would have: each call
	// another one, to the same store. It is closed when t ends, if the test did
	// not close it before.
	Open(t testing.TB) Store
	// DB is a connection of another program: plain SQL, in which the tables
	// are found by their unqualified names. It does not create tables.
	DB(t testing.TB) *sql.DB
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	suites := []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"Lock", testLock},
		{"Run", testRun},
		{"Resume", testResume},
		{"Fence", testFence},
		{"Claim", testClaim},
		{"Take", testTake},
		{"Contend", testContend},
		{"Settle", testSettle},
		{"GiveBack", testGiveBack},
		{"Turn", testTurn},
		{"Sweep", testSweep},
		{"DeadLetters", testDeadLetters},
		{"Payload", testPayload},
		{"Resend", testResend},
		{"Targets", testTargets},
		{"Expiry", testExpiry},
		{"Read", testRead},
		{"IDs", testIDs},
		{"Other", testOther},
		{"Program", testProgram},
		{"Outbox", testOutbox},
		{"History", testHistory},
		{"Prune", testPrune},
		{"Schema", testSchema},
		{"Model", testModel},
	}
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) { s.run(t, h) })
	}
}
