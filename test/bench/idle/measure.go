package main

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// resourceUsage is what the processes used in a period.
type resourceUsage struct {
	duration             time.Duration
	operatorCPU, natsCPU time.Duration
	operatorCounters
	// rss and peakRSS of the operator at the end of the period, in bytes.
	rss, peakRSS int64
}

// perMinute converts a count to a rate.
func (u *resourceUsage) perMinute(count float64) float64 { return count / u.duration.Minutes() }

// readUsageSince returns the usage of the processes since their start. The duration counts from
// startedAt.
func readUsageSince(ctx context.Context, startedAt time.Time, operator *testenv.Operator, nats int) (u resourceUsage, err error) {
	u.duration = time.Since(startedAt)
	if u.operatorCPU, err = harness.ProcessCPUTime(operator.Pid()); err != nil {
		return u, err
	}
	if u.natsCPU, err = harness.ProcessCPUTime(nats); err != nil {
		return u, err
	}
	if u.rss, u.peakRSS, err = harness.ProcessMemory(operator.Pid()); err != nil {
		return u, err
	}
	u.operatorCounters, err = readCounters(ctx, operator)
	return u, err
}

// measureUsageFor measures the usage for the given duration from now on.
func measureUsageFor(ctx context.Context, window time.Duration, operator *testenv.Operator, nats int) (resourceUsage, error) {
	startedAt := time.Now()
	before, err := readUsageSince(ctx, startedAt, operator, nats)
	if err != nil {
		return resourceUsage{}, err
	}
	if err := clock.SleepContext(ctx, window); err != nil {
		return resourceUsage{}, err
	}
	after, err := readUsageSince(ctx, startedAt, operator, nats)
	if err != nil {
		return resourceUsage{}, err
	}
	after.operatorCPU -= before.operatorCPU
	after.natsCPU -= before.natsCPU
	after.operatorCounters = after.difference(before.operatorCounters)
	return after, nil
}
