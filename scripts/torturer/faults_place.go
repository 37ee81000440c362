//go:build linux

package main

import (
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The faults of what all depend on: the server, the receiver, the disk.

func (f *faults) restartFast(_ uint64, r *rand.Rand) bool      { return f.restart("fast", r) }
func (f *faults) restartImmediate(_ uint64, r *rand.Rand) bool { return f.restart("immediate", r) }

// restart is not withheld from anybody: who comes after a restart waits for
// longer than a lease.
func (f *faults) restart(mode string, r *rand.Rand) bool {
	return f.alone("server", func() {
		f.note("fault: server stopped, %s", mode)
		f.server.Stop(f.t, mode)
		f.last(time.Duration(r.Int64N(int64(2 * time.Second))))
		f.server.Up(f.t)
		f.note("server up")
		f.last(20 * time.Second)
	})
}

func (f *faults) refuse(_ uint64, r *rand.Rand) bool {
	return f.alone("receiver", func() {
		f.refusing.Store(true)
		f.last(time.Duration(r.Int64N(int64(2 * time.Second))))
		f.refusing.Store(false)
	})
}

// fillDisk fills the local store's file system.
func (f *faults) fillDisk(_ uint64, r *rand.Rand) bool {
	return f.alone("disk", func() {
		f.note("fault: disk full")
		name := f.local() + "/filler"
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY, 0o600)
		check(err)
		block := []byte(strings.Repeat("full", 1024))
		for err == nil {
			_, err = unix.Write(fd, block)
		}
		unix.Close(fd)
		f.last(time.Duration(r.Int64N(int64(3 * time.Second))))
		check(unix.Unlink(name))
		f.note("disk no longer full")
	})
}
