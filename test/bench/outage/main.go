// Command outage measures how soon the operator reports that a broker is unreachable, and that
// it is reachable again, on a real control plane with simulated nodes and a real NATS server.
//
//	go run ./test/bench/outage                           5 outages with 1 Queue, 5 with 100
//	go run ./test/bench/outage -queues 1000 -outages 10
//
// It runs a release build of the operator. In each outage, the broker is killed, so that its
// connections are not closed, and later restarted with its files, while a watch records the
// changes of each Queue's BrokerReachable condition. During the outage, the number of workers
// of a WorkerPool with a backlog must not change, and a SequentialJob must complete, because it
// does not use the broker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

func main() { harness.RunMain(runBenchmark, nil) }

func runBenchmark(ctx context.Context) error {
	sizes := flag.String("queues", "1,100", "comma-separated numbers of Queues, one measurement each")
	outages := flag.Int("outages", 5, "number of outages")
	down := flag.Duration("down", 20*time.Second, "minimum duration of an outage; after 20s the interval between reconnects no longer grows")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a running control plane; if empty, a local one is started")
	flag.Parse()
	if *outages < 1 {
		return errors.New("-outages must be at least 1")
	}
	var environments []*environment
	for size := range strings.SplitSeq(*sizes, ",") {
		queues, err := strconv.Atoi(size)
		if err != nil || queues < 1 {
			return fmt.Errorf("-queues: %q is not a number of Queues", size)
		}
		environments = append(environments, &environment{Environment: harness.Environment("bench-outage-" + size), queues: queues})
	}
	c, end, err := harness.OpenCluster(ctx, *kubeconfig)
	if err != nil {
		return err
	}
	defer end()
	return measureEnvironments(ctx, c, environments, *outages, *down)
}

func measureEnvironments(ctx context.Context, c *harness.Cluster, environments []*environment, outages int, down time.Duration) error {
	binary, err := harness.BuildOperator(ctx)
	if err != nil {
		return err
	}
	harness.PrintMachine()
	var missed []error
	for _, env := range environments {
		results, err := env.measureOutages(ctx, c, binary, outages, down)
		if err != nil {
			return fmt.Errorf("%d Queues: %w", env.queues, err)
		}
		missed = append(missed, printReport(env, results))
	}
	return errors.Join(missed...)
}
