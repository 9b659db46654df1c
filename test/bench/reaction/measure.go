package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// idleReason is the reason of an idle pool's last decision.
const idleReason = string(scaling.ReasonIdle)

// trialResult is the result of one trial. All times count from before the first message was
// published.
type trialResult struct {
	publishDuration           time.Duration // until the broker has all messages
	timeToReplicas, timeToPod time.Duration
}

// measureTrial waits until the pool is idle, publishes a burst, and waits until the pool has
// replicas and a Pod.
func (env *environment) measureTrial(ctx context.Context, c *harness.Cluster, o *poolObserver, p *harness.Producer) (trialResult, error) {
	if err := env.waitUntilIdle(ctx, c); err != nil {
		return trialResult{}, fmt.Errorf("waiting for the pool to become idle: %w", err)
	}
	// A random time keeps the trial from being synchronized with periodic work of the operator.
	pause := time.Second + time.Duration(rand.Int64N(int64(4*time.Second))) //nolint:gosec // the time is not a secret
	if err := clock.SleepContext(ctx, pause); err != nil {
		return trialResult{}, err
	}
	o.resetTimes()
	startedAt := time.Now()
	if err := p.PublishBurst(ctx, env.burstMessages, waitTimeout); err != nil {
		return trialResult{}, err
	}
	r := trialResult{publishDuration: time.Since(startedAt)}
	err := harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		replicasTime, podTime, complete, err := o.reactionTimes()
		r.timeToReplicas, r.timeToPod = replicasTime.Sub(startedAt), podTime.Sub(startedAt)
		return complete, err
	})
	if err != nil {
		return trialResult{}, fmt.Errorf("waiting for a Pod: %w", err)
	}
	stream, err := p.QueueStream(ctx)
	if err != nil {
		return r, err
	}
	return r, stream.Purge(ctx)
}
