// Command idle measures what idle Queues and WorkerPools cost, on a real control plane with a
// real NATS server.
//
//	go run ./test/bench/idle              1,000 Queues, and a WorkerPool at zero for each
//	go run ./test/bench/idle -pools 200   a fifth of that
//
// It runs a release build of the operator with all its controllers. It measures the usage until
// all objects are reconciled and, after a pause, the usage while nothing happens. The NATS
// server is a process of its own, so that its usage can be measured separately.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

func main() { harness.RunMain(runBenchmark, nil) }

func runBenchmark(ctx context.Context) error {
	env := &environment{Environment: "bench-idle"}
	flag.IntVar(&env.pools, "pools", 1000, "number of WorkerPools, each with a Queue")
	settle := flag.Duration("settle", 30*time.Second, "pause between the first reconciliations and the measurement at rest")
	window := flag.Duration("window", time.Minute, "duration of the measurement at rest")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a running control plane; if empty, a local one is started")
	flag.Parse()
	if env.pools < 1 || *window < time.Second {
		return errors.New("-pools must be at least 1, and -window at least 1s")
	}
	c, end, err := harness.OpenCluster(ctx, *kubeconfig)
	if err != nil {
		return err
	}
	defer end()
	return measureUsage(ctx, c, env, *settle, *window)
}

func measureUsage(ctx context.Context, c *harness.Cluster, env *environment, settle, window time.Duration) error {
	binary, err := harness.BuildOperator(ctx)
	if err != nil {
		return err
	}
	harness.PrintMachine()
	nats, err := harness.StartNATS(ctx)
	if err != nil {
		return err
	}
	defer nats.StopAndRemove()
	defer env.DeleteObjects(ctx, c)
	if err := env.createObjects(ctx, c, nats.URL); err != nil {
		return fmt.Errorf("creating the environment: %w", err)
	}
	startedAt := time.Now()
	operator, err := harness.StartOperator(ctx, binary, c, append(harness.MetricsFlags(), "--namespaces", string(env.Environment))...)
	if err != nil {
		return err
	}
	defer harness.TerminateProcess(operator)
	if err := env.WaitUntilReconciled(ctx, c, reconcileTimeout, env.pools, env.pools); err != nil {
		return err
	}
	start, err := readUsageSince(ctx, startedAt, operator.Process.Pid, nats.Pid())
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "  all objects are reconciled after %s; waiting before the measurement at rest\n", start.duration.Round(time.Second))
	if err := clock.SleepContext(ctx, settle); err != nil {
		return err
	}
	idle, err := measureUsageFor(ctx, window, operator.Process.Pid, nats.Pid())
	if err != nil {
		return err
	}
	printReport(env, start, idle)
	return nil
}
