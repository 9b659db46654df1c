package main

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// usage is what was used, and asked for, in a time.
type usage struct {
	took, operator, nats time.Duration // the latter two: CPU
	counters
	// rss and peakRSS of the operator at its end, in bytes.
	rss, peakRSS int64
}

// perMinute is a count as a rate.
func (u *usage) perMinute(count float64) float64 { return count / u.took.Minutes() }

// measureSince is what was used since the operator's start.
func measureSince(ctx context.Context, begun time.Time, operator, nats int) (u usage, err error) {
	u.took = time.Since(begun)
	if u.operator, err = harness.CPUOf(operator); err != nil {
		return u, err
	}
	if u.nats, err = harness.CPUOf(nats); err != nil {
		return u, err
	}
	if u.rss, u.peakRSS, err = harness.RSSOf(operator); err != nil {
		return u, err
	}
	u.counters, err = count(ctx)
	return u, err
}

// measureFor is what is used from now on, for so long.
func measureFor(ctx context.Context, window time.Duration, operator, nats int) (usage, error) {
	begun := time.Now()
	before, err := measureSince(ctx, begun, operator, nats)
	if err != nil {
		return usage{}, err
	}
	if err := harness.Pause(ctx, window); err != nil {
		return usage{}, err
	}
	after, err := measureSince(ctx, begun, operator, nats)
	if err != nil {
		return usage{}, err
	}
	after.operator -= before.operator
	after.nats -= before.nats
	after.counters = after.since(before.counters)
	return after, nil
}
