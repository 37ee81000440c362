package runner

import (
	"context"
	"time"
)

// KeepAlive calls renew again and again, every time, until stop is called,
// which waits for it. An end of ctx does not end it: an interrupted sender
// finishes what is in flight, and its claim or lease must last so long. The
// context that renew is given ends with stop.
func KeepAlive(ctx context.Context, every time.Duration, renew func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				renew(ctx)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
