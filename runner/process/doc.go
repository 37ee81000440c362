// Package process runs the job's command under a guard: a small process of the
// same binary (package guard) between oncectl and the command.
//
//	oncectl → oncectl-guard → command → …
//
// The guard holds the lock's descriptor until the job is dead. If oncectl is
// killed, the guard kills the job; if oncectl falls silent, the guard pauses
// it; if the guard is killed, oncectl kills the job. On Linux the job is every
// descendant of the command, elsewhere the command's process group.
//
// What main must do: call GuardMain first of all, and be the only code in the
// program that starts or waits for processes.
//
// Left alone is what the command leaves running when it ends by itself. Such a
// daemon should have its standard error redirected, as under cron: the pipe
// that carried it ends with oncectl.
package process
