package cmd

import (
	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/runner/broker"
	"github.com/oncectl/oncectl/runner/delivery"
)

// openBroker opens a run's socket in the first folder that can be written: the
// root file system may well be read-only. concurrency bounds the sends of the
// whole job. leave is told of what a killed oncectl would leave behind.
func openBroker(env *Env, concurrency int, leave func(paths ...string)) (runner.GatedBroker, error) {
	state, _ := stateDir(env)
	return broker.Listen(broker.Options{
		Folders:  []string{env.Getenv("XDG_RUNTIME_DIR"), env.Getenv("TMPDIR"), "/tmp", "/dev/shm", "/run", state, "/var/tmp", "."},
		Leave:    leave,
		SendGate: delivery.NewGate(concurrency),
		Log:      env.Log,
	})
}

// openGate is the gate of this process's sends, or that of the run above.
func openGate(claims claimStore, concurrency int) runner.SendGate {
	if c, ok := claims.(*broker.Client); ok {
		return c.Gate()
	}
	return delivery.NewGate(concurrency)
}
