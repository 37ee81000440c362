// Package runner is the domain of oncectl: events and their claims, locks and
// their runs, dead letters, and the life of one run from lock to release. It
// uses the standard library only and knows no SQL, no flags and no HTTP; the
// packages below it implement its interfaces, and package cmd puts them
// together.
package runner
