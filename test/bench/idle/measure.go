package main

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// resourceUsage is what was used, and asked for, in a time.
type resourceUsage struct {
	duration, operatorCPU, natsCPU time.Duration // the latter two: CPU
	operatorCounters
	// rss and peakRSS of the operator at its end, in bytes.
	rss, peakRSS int64
}

// perMinute is a count as a rate.
func (u *resourceUsage) perMinute(count float64) float64 { return count / u.duration.Minutes() }

// readUsageSince is what was used since the operator's start.
func readUsageSince(ctx context.Context, begun time.Time, operator, nats int) (u resourceUsage, err error) {
	u.duration = time.Since(begun)
	if u.operatorCPU, err = harness.ProcessCPUTime(operator); err != nil {
		return u, err
	}
	if u.natsCPU, err = harness.ProcessCPUTime(nats); err != nil {
		return u, err
	}
	if u.rss, u.peakRSS, err = harness.ProcessMemory(operator); err != nil {
		return u, err
	}
	u.operatorCounters, err = readCounters(ctx)
	return u, err
}

// measureUsageFor is what is used from now on, for so long.
func measureUsageFor(ctx context.Context, window time.Duration, operator, nats int) (resourceUsage, error) {
	begun := time.Now()
	before, err := readUsageSince(ctx, begun, operator, nats)
	if err != nil {
		return resourceUsage{}, err
	}
	if err := harness.SleepContext(ctx, window); err != nil {
		return resourceUsage{}, err
	}
	after, err := readUsageSince(ctx, begun, operator, nats)
	if err != nil {
		return resourceUsage{}, err
	}
	after.operatorCPU -= before.operatorCPU
	after.natsCPU -= before.natsCPU
	after.operatorCounters = after.difference(before.operatorCounters)
	return after, nil
}
