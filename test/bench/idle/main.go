// Command idle measures what idle Queues and WorkerPools cost, on a real control plane with a real NATS server.
//
//	go run ./test/bench/idle              1,000 Queues, and a WorkerPool at zero for each
//	go run ./test/bench/idle -pools 200   a fifth of that
//
// It runs a release build of the operator with all its controllers. It measures the usage until all objects are reconciled and, once it no
// longer writes, the usage while nothing happens. The NATS server is a process of its own, so that its usage can be measured separately.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

type environment struct {
	harness.Environment
	pools          int
	settle, window time.Duration
}

func main() {
	env := &environment{Environment: "bench-idle", pools: 1000}
	harness.PositiveFlag(&env.pools, "pools", "number of WorkerPools, each with a Queue")
	flag.DurationVar(&env.settle, "settle", 30*time.Second, "time without a write of the operator before the measurement at rest")
	flag.DurationVar(&env.window, "window", time.Minute, "duration of the measurement at rest")
	harness.RunOnCluster(env.measureUsage, nil)
}

func (env *environment) measureUsage(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	if env.window < time.Second {
		return errors.New("-window must be at least 1s")
	}
	nats := harness.StartNATS(ctx)
	defer nats.StopAndRemove()
	defer env.DeleteObjects(ctx, c)
	harness.Check(env.CreateNamespace(ctx, c, nats.URL))
	harness.Check(harness.CreateAll(ctx, c, 2*env.pools, func(i int) client.Object {
		name := fmt.Sprintf("orders-%04d", i/2)
		if i%2 == 0 {
			return env.NewQueue(name)
		}
		return env.NewWorkerPool(name)
	}))
	startedAt := time.Now()
	operator := env.StartOperator(ctx, operatorBinary, c, testenv.MetricsFlags()...)
	defer operator.Stop()
	harness.Check(env.WaitUntilReconciled(ctx, c, reconcileTimeout, env.pools, env.pools))
	start := readUsageSince(ctx, startedAt, operator, nats.Pid())
	harness.PrintProgress("all objects are reconciled after %s; waiting until the operator has written nothing for %s", start.duration.Round(time.Second), env.settle)
	// The cluster's controllers still change the Deployments of pools when all pools are reconciled.
	harness.Check(harness.WaitForRest(ctx, operator, env.settle, reconcileTimeout))
	idle := measureUsageFor(ctx, env.window, operator, nats.Pid())
	printReport(env, start, idle)
	return nil
}

type resourceUsage struct {
	duration             time.Duration
	operatorCPU, natsCPU time.Duration
	operatorCounters
	// rss and peakRSS of the operator at the end of the period, in bytes.
	rss, peakRSS int64
}

func (u *resourceUsage) perMinute(count float64) float64 { return count / u.duration.Minutes() }

// readUsageSince returns the usage of the processes since their start. The duration counts from startedAt.
func readUsageSince(ctx context.Context, startedAt time.Time, operator *testenv.Operator, nats int) (u resourceUsage) {
	u.duration = time.Since(startedAt)
	u.operatorCPU = harness.Must(harness.ProcessCPUTime(operator.Pid()))
	u.natsCPU = harness.Must(harness.ProcessCPUTime(nats))
	u.rss, u.peakRSS = harness.Must2(harness.ProcessMemory(operator.Pid()))
	u.operatorCounters = readCounters(ctx, operator)
	return u
}

func measureUsageFor(ctx context.Context, window time.Duration, operator *testenv.Operator, nats int) resourceUsage {
	startedAt := time.Now()
	before := readUsageSince(ctx, startedAt, operator, nats)
	harness.Check(clock.SleepContext(ctx, window))
	after := readUsageSince(ctx, startedAt, operator, nats)
	after.operatorCPU -= before.operatorCPU
	after.natsCPU -= before.natsCPU
	after.requests -= before.requests
	after.writes -= before.writes
	after.queueReconciliations -= before.queueReconciliations
	after.poolReconciliations -= before.poolReconciliations
	return after
}

type operatorCounters struct {
	// requests to the API server, and the writes among them.
	requests, writes float64
	// reconciliations of Queues and WorkerPools.
	queueReconciliations, poolReconciliations float64
}

func readCounters(ctx context.Context, operator *testenv.Operator) (c operatorCounters) {
	families := harness.Must(harness.OperatorMetrics(ctx, operator))
	c.requests, c.writes = harness.APIRequests(families)
	for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
		switch harness.MetricLabel(metric, "controller") {
		case "queue":
			c.queueReconciliations += metric.GetCounter().GetValue()
		case "workerpool":
			c.poolReconciliations += metric.GetCounter().GetValue()
		}
	}
	return c
}

// reconcileTimeout is the time that the operator has to reconcile all objects.
const reconcileTimeout = 10 * time.Minute

func printReport(env *environment, start, idle resourceUsage) {
	fmt.Printf("\n%d Queues, and a WorkerPool at zero for each\n", env.pools)
	w := harness.NewTable("\tuntil all were reconciled\tat rest\t")
	row := func(what, format string, figure func(u *resourceUsage) float64) {
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t\n", what, figure(&start), figure(&idle))
	}
	row("measured for, s", "%.0f", func(u *resourceUsage) float64 { return u.duration.Seconds() })
	row("operator's CPU, % of a core", "%.1f", func(u *resourceUsage) float64 { return 100 * u.operatorCPU.Seconds() / u.duration.Seconds() })
	row("operator's RSS, MB", "%.0f", func(u *resourceUsage) float64 { return float64(u.rss) / 1e6 })
	row("operator's peak RSS, MB", "%.0f", func(u *resourceUsage) float64 { return float64(u.peakRSS) / 1e6 })
	row("NATS server's CPU, % of a core", "%.1f", func(u *resourceUsage) float64 { return 100 * u.natsCPU.Seconds() / u.duration.Seconds() })
	row("API requests a minute", "%.0f", func(u *resourceUsage) float64 { return u.perMinute(u.requests) })
	row("writes among them", "%.0f", func(u *resourceUsage) float64 { return u.perMinute(u.writes) })
	row("API requests for a pool and its queue", "%.1f", func(u *resourceUsage) float64 { return u.requests / float64(env.pools) })
	row("reconciliations of a pool", "%.1f", func(u *resourceUsage) float64 { return u.poolReconciliations / float64(env.pools) })
	row("reconciliations of a queue", "%.1f", func(u *resourceUsage) float64 { return u.queueReconciliations / float64(env.pools) })
	_ = w.Flush() // it writes to standard output
}
