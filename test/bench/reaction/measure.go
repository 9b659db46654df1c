package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/yardmaster/yardmaster/internal/scaling"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// idleReason is why a pool sleeps.
const idleReason = string(scaling.ReasonIdle)

// trialResult is what one trial found, counted from before the first message was sent.
type trialResult struct {
	publishDuration           time.Duration // the broker has all messages
	timeToReplicas, timeToPod time.Duration
}

// measureTrial waits until the pool sleeps, sends a burst, and sees the pool wake up.
func (env *environment) measureTrial(ctx context.Context, c *harness.Cluster, o *poolObserver, p *queueProducer) (trialResult, error) {
	if err := env.waitUntilIdle(ctx, c); err != nil {
		return trialResult{}, fmt.Errorf("waiting for the pool to sleep: %w", err)
	}
	// Another time each: nothing shall be in step with what the operator does every so often.
	pause := time.Second + time.Duration(rand.Int64N(int64(4*time.Second))) //nolint:gosec // to spread, not to hide
	if err := harness.SleepContext(ctx, pause); err != nil {
		return trialResult{}, err
	}
	o.resetTimes()
	began := time.Now()
	if err := p.publishBurst(ctx, env.burstMessages); err != nil {
		return trialResult{}, err
	}
	r := trialResult{publishDuration: time.Since(began)}
	err := harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		asked, made, both, err := o.reactionTimes()
		r.timeToReplicas, r.timeToPod = asked.Sub(began), made.Sub(began)
		return both, err
	})
	if err != nil {
		return trialResult{}, fmt.Errorf("waiting for a Pod: %w", err)
	}
	return r, p.purgeQueue(ctx)
}
