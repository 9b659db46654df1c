// Command outage measures how soon the operator tells that a broker is lost, and that it is
// back, on a real control plane with simulated nodes and a real NATS server.
//
//	go run ./test/bench/outage                           5 outages with 1 Queue, 5 with 100
//	go run ./test/bench/outage -queues 1000 -outages 10
//
// The operator is run as it is built. The broker is killed, without a word to anybody, and
// started again with its files when it has been gone for a while; a watch sees each Queue's
// BrokerReachable change. Meanwhile a WorkerPool with a backlog must be asked for neither
// more nor fewer workers, and a SequentialJob must run through: the broker is no business of
// its.
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
	sizes := flag.String("queues", "1,100", "how many Queues there are, one measurement each")
	outages := flag.Int("outages", 5, "how often the broker goes")
	down := flag.Duration("down", 20*time.Second, "how long it is gone at least: by then tries are as far apart as they get")
	kubeconfig := flag.String("kubeconfig", "", "a control plane that is up; empty: one of its own")
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
