// Command schedules measures how soon the operator starts the runs of Schedules that are due in the same second, on a
// real control plane, and the memory that they need.
//
//	go run ./test/bench/schedules                  1,000 Schedules
//	go run ./test/bench/schedules -schedules 100
//
// It runs a release build of the operator with all its controllers. The runs are suspended SequentialJobs, so that the
// time to run them is not part of the measurement.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	b := &benchmark{schedules: 1000}
	harness.PositiveFlag(&b.schedules, "schedules", "number of Schedules")
	harness.RunOnCluster(b.measure)
}

// benchmark has the values of the flags.
type benchmark struct{ schedules int }

const (
	// maxDelay is the target for the time from when the runs are due until all exist.
	maxDelay = 5 * time.Second
	// maxMemory is the target for the memory that is added when the Schedules are due, by their runs.
	maxMemory = 20 << 20
)

func (b *benchmark) measure(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	env := harness.Environment("bench-schedules")
	if err := env.CreateNamespace(ctx, c, "nats://127.0.0.1:1"); err != nil {
		return err
	}
	bare, err := createBareRuns(ctx, c, b.schedules)
	if err != nil {
		return err
	}
	operator, err := testenv.StartOperator(ctx, operatorBinary, c.Cluster, append(testenv.MetricsFlags(), "--namespaces", string(env))...)
	if err != nil {
		return err
	}
	defer operator.Stop()
	before, _, err := restingMemory(ctx, operator)
	if err != nil {
		return err
	}
	due := time.Now().Add(2 * time.Minute).Truncate(time.Minute).Add(time.Minute)
	if err := createSchedules(ctx, c, env, b.schedules, due); err != nil {
		return err
	}
	harness.PrintProgress("%d Schedules are due at %s", b.schedules, due.Format(time.TimeOnly))
	resting, _, err := restingMemory(ctx, operator)
	if err != nil {
		return err
	}
	delays, err := followRuns(ctx, c, env, b.schedules, due)
	if err != nil {
		return err
	}
	after, peak, err := restingMemory(ctx, operator)
	if err != nil {
		return err
	}
	last := delays[len(delays)-1]
	fmt.Printf("\n%d Schedules due in the same second: runs created after p50 %.2f s, p99 %.2f s, all %.2f s\n", b.schedules,
		harness.Quantile(delays, 0.5).Seconds(), harness.Quantile(delays, 0.99).Seconds(), last.Seconds())
	fmt.Printf("a bare client creates the same runs in %.2f s: the operator needs %.1f times that\n", bare.Seconds(), last.Seconds()/bare.Seconds())
	fmt.Printf("resident memory: %d MB before, %d MB with the Schedules, %d MB with their runs, at most %d MB meanwhile\n",
		before>>20, resting>>20, after>>20, peak>>20)
	return harness.CheckTarget(fmt.Sprintf("all runs within %s, and at most %d MB more memory than before they were due", maxDelay, maxMemory>>20),
		last <= maxDelay && after-resting <= maxMemory)
}
