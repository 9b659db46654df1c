// Command outage measures how soon the operator reports that a broker is unreachable, and that
// it is reachable again, on a real control plane with simulated nodes and a real NATS server.
//
//	go run ./test/bench/outage                 5 outages with 1 Queue, 5 with 100
//	go run ./test/bench/outage -outages 10
//
// It runs a release build of the operator. In each outage, the broker is killed, so that its connections are not closed, and later restarted
// with its files, while a watch records the changes of each Queue's BrokerReachable condition. During the outage, the number of workers of a
// WorkerPool with a backlog must not change, and a SequentialJob must complete, because it does not use the broker.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

func main() {
	outages := 5
	harness.PositiveFlag(&outages, "outages", "number of outages")
	harness.RunOnCluster(func(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
		var missed []error
		for _, queues := range []int{1, 100} {
			env := &environment{Environment: harness.Environment(fmt.Sprintf("bench-outage-%d", queues)), queues: queues}
			results, err := env.measureOutages(ctx, c, operatorBinary, outages)
			if err != nil {
				return fmt.Errorf("%d Queues: %w", env.queues, err)
			}
			missed = append(missed, printReport(env, results))
		}
		return errors.Join(missed...)
	})
}
