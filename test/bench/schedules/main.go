// Command schedules measures how soon the operator starts the runs of Schedules that are due in the same second, on a
// real control plane, and the memory that they need.
//
//	go run ./test/bench/schedules                  1,000 Schedules
//	go run ./test/bench/schedules -schedules 100
//	go run ./test/bench/schedules -rounds 5        medians of five rounds, each next to a bare client
//
// It runs a release build of the operator with all its controllers. The runs are suspended SequentialJobs, so that the
// time to run them is not part of the measurement.
package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	b := &benchmark{schedules: 1000, rounds: 1}
	harness.PositiveFlag(&b.schedules, "schedules", "number of Schedules")
	harness.PositiveFlag(&b.rounds, "rounds", "number of rounds")
	harness.RunOnCluster(b.measure)
}

// benchmark has the values of the flags.
type benchmark struct{ schedules, rounds int }

const (
	// maxRatio is the target for the time from when the runs are due until all exist, as a multiple of the time that a bare client
	// takes to create them.
	maxRatio = 2
	// maxMemory is the target for the memory that is added when the Schedules are due, by their runs.
	maxMemory = 20 << 20
)

func (b *benchmark) measure(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	var namespaces []string
	for i := range b.rounds {
		namespaces = append(namespaces, string(roundNamespace(i)))
		if err := roundNamespace(i).CreateNamespace(ctx, c, "nats://127.0.0.1:1"); err != nil {
			return err
		}
	}
	operator, err := testenv.StartOperator(ctx, operatorBinary, c.Cluster, append(testenv.MetricsFlags(), "--namespaces", strings.Join(namespaces, ","))...)
	if err != nil {
		return err
	}
	defer operator.Stop()
	var all []round
	for i := range b.rounds {
		r, err := b.measureRound(ctx, c, operator, i)
		if err != nil {
			return err
		}
		all = append(all, r)
		fmt.Printf("round %d: runs created after p50 %.2f s, p99 %.2f s, all %.2f s; by a bare client %.2f s: %.2f times that, with %.0f requests, of which %.0f writes\n", i+1,
			r.p50.Seconds(), r.p99.Seconds(), r.all.Seconds(), r.bare.Seconds(), r.ratio(), r.requests, r.writes)
	}
	first := all[0] // a copy, because they are sorted
	fmt.Printf("\nresident memory: %d MB before, %d MB with the Schedules, %d MB with their runs, at most %d MB meanwhile\n",
		first.before>>20, first.resting>>20, first.after>>20, first.peak>>20)
	slices.SortFunc(all, func(a, b round) int { return cmp.Compare(a.ratio(), b.ratio()) })
	median := &all[len(all)/2]
	fmt.Printf("%d Schedules due in the same second, the median of %d rounds: all runs created after %.2f s, by a bare client in %.2f s\n",
		b.schedules, b.rounds, median.all.Seconds(), median.bare.Seconds())
	return harness.CheckTarget(
		fmt.Sprintf("%.2f times the time of the bare client, at most %d, and at most %d MB more memory than before they were due", median.ratio(), maxRatio, maxMemory>>20),
		median.ratio() <= maxRatio && first.after-first.resting <= maxMemory)
}

// round is a measurement.
type round struct {
	// bare is how long a bare client took to create the runs. p50, p99 and all are when the operator had created that many.
	bare, p50, p99, all time.Duration
	// requests and writes, which are some of them, are those that the operator made until then.
	requests, writes float64
	// The memory is measured in the first round.
	before, resting, after, peak int64
}

func (r *round) ratio() float64 { return r.all.Seconds() / r.bare.Seconds() }

func roundNamespace(i int) harness.Environment {
	return harness.Environment(fmt.Sprintf("bench-schedules-%d", i))
}

// measureRound measures the bare client shortly before and after the operator, because other programs on the machine and the garbage
// collections of the API server slow down both.
func (b *benchmark) measureRound(ctx context.Context, c *harness.Cluster, operator *testenv.Operator, i int) (r round, err error) {
	env := roundNamespace(i)
	lead := 50 * time.Second
	if i == 0 {
		lead += restTime
		if r.before, _, err = restingMemory(ctx, operator); err != nil {
			return r, err
		}
	}
	due := time.Now().Add(lead).Truncate(time.Minute).Add(time.Minute)
	if err := createSchedules(ctx, c, env, b.schedules, due); err != nil {
		return r, err
	}
	harness.PrintProgress("%d Schedules are due at %s", b.schedules, due.Format(time.TimeOnly))
	if i == 0 {
		if r.resting, _, err = restingMemory(ctx, operator); err != nil {
			return r, err
		}
	}
	if err := clock.SleepContext(ctx, time.Until(due.Add(-25*time.Second))); err != nil {
		return r, err
	}
	bareBefore, err := createBareRuns(ctx, c, env+"-before", b.schedules)
	if err != nil {
		return r, err
	}
	before, err := requests(ctx, operator)
	if err != nil {
		return r, err
	}
	delays, err := followRuns(ctx, c, env, b.schedules, due)
	if err != nil {
		return r, err
	}
	after, err := requests(ctx, operator)
	if err != nil {
		return r, err
	}
	r.requests, r.writes = after[0]-before[0], after[1]-before[1]
	r.p50, r.p99, r.all = harness.Quantile(delays, 0.5), harness.Quantile(delays, 0.99), delays[len(delays)-1]
	if i == 0 {
		if r.after, r.peak, err = restingMemory(ctx, operator); err != nil {
			return r, err
		}
	} else if err := harness.WaitForRest(ctx, operator, 2*time.Second, maxRestTime); err != nil {
		return r, err
	}
	bareAfter, err := createBareRuns(ctx, c, env+"-after", b.schedules)
	r.bare = (bareBefore + bareAfter) / 2
	return r, err
}

// requests returns how many requests the operator has made, and how many of them to write.
func requests(ctx context.Context, operator *testenv.Operator) (requests [2]float64, err error) {
	metrics, err := harness.OperatorMetrics(ctx, operator)
	if err != nil {
		return requests, err
	}
	requests[0], requests[1] = harness.APIRequests(metrics)
	return requests, nil
}
