package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/yardmaster/yardmaster/internal/scaling"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// idle is why a pool sleeps.
const idle = string(scaling.ReasonIdle)

// result is what one trial found, counted from before the first message was sent.
type result struct {
	published     time.Duration // the broker has all messages
	replicas, pod time.Duration
}

// measure waits until the pool sleeps, sends a burst, and sees the pool wake up.
func (y *yard) measure(ctx context.Context, c *harness.Cluster, o *observer, p *producer) (result, error) {
	if err := y.asleep(ctx, c); err != nil {
		return result{}, fmt.Errorf("waiting for the pool to sleep: %w", err)
	}
	// Another time each: nothing shall be in step with what the operator does every so often.
	pause := time.Second + time.Duration(rand.Int64N(int64(4*time.Second))) //nolint:gosec // to spread, not to hide
	if err := harness.Pause(ctx, pause); err != nil {
		return result{}, err
	}
	o.reset()
	began := time.Now()
	if err := p.burst(ctx, y.jobs); err != nil {
		return result{}, err
	}
	r := result{published: time.Since(began)}
	err := harness.Poll(ctx, patience, func() (bool, error) {
		asked, made, both, err := o.seen()
		r.replicas, r.pod = asked.Sub(began), made.Sub(began)
		return both, err
	})
	if err != nil {
		return result{}, fmt.Errorf("waiting for a Pod: %w", err)
	}
	return r, p.purge(ctx)
}
