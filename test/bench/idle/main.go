// Command idle measures what idle Queues and WorkerPools cost, on a real control plane with a
// real NATS server.
//
//	go run ./test/bench/idle              1,000 Queues, and a WorkerPool at zero for each
//	go run ./test/bench/idle -pools 200   a fifth of that
//
// It runs a release build of the operator with all its controllers. It measures the usage until
// all objects are reconciled and, once it no longer writes, the usage while nothing happens. The NATS
// server is a process of its own, so that its usage can be measured separately.
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	env := &environment{Environment: "bench-idle", pools: 1000}
	harness.PositiveFlag(&env.pools, "pools", "number of WorkerPools, each with a Queue")
	flag.DurationVar(&env.settle, "settle", 30*time.Second, "time without a write of the operator before the measurement at rest")
	flag.DurationVar(&env.window, "window", time.Minute, "duration of the measurement at rest")
	harness.RunOnCluster(env.measureUsage)
}

func (env *environment) measureUsage(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	if env.window < time.Second {
		return errors.New("-window must be at least 1s")
	}
	nats, end, err := env.StartBroker(ctx, c, env.createObjects)
	if err != nil {
		return err
	}
	defer end()
	startedAt := time.Now()
	operator, err := testenv.StartOperator(ctx, operatorBinary, c.Cluster, append(testenv.MetricsFlags(), "--namespaces", string(env.Environment))...)
	if err != nil {
		return err
	}
	defer operator.Stop()
	if err := env.WaitUntilReconciled(ctx, c, reconcileTimeout, env.pools, env.pools); err != nil {
		return err
	}
	start, err := readUsageSince(ctx, startedAt, operator, nats.Pid())
	if err != nil {
		return err
	}
	harness.PrintProgress("all objects are reconciled after %s; waiting until the operator has written nothing for %s", start.duration.Round(time.Second), env.settle)
	// The cluster's controllers still change the Deployments of pools when all pools are reconciled.
	if err := harness.WaitForRest(ctx, operator, env.settle, reconcileTimeout); err != nil {
		return err
	}
	idle, err := measureUsageFor(ctx, env.window, operator, nats.Pid())
	if err != nil {
		return err
	}
	printReport(env, start, idle)
	return nil
}
