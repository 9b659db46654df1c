// Command outage measures how soon the operator reports that a broker is unreachable, and that
// it is reachable again, on a real control plane with simulated nodes and a real NATS server.
//
//	go run ./test/bench/outage                           5 outages with 1 Queue, 5 with 100
//	go run ./test/bench/outage -queues 1000 -outages 10
//
// It runs a release build of the operator. In each outage, the broker is killed, so that its connections are not closed, and later restarted
// with its files, while a watch records the changes of each Queue's BrokerReachable condition. During the outage, the number of workers of a
// WorkerPool with a backlog must not change, and a SequentialJob must complete, because it does not use the broker.
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

func main() {
	b := &benchmark{queueCounts: []int{1, 100}, outages: 5}
	flag.Func("queues", "comma-separated numbers of Queues, one measurement each (default 1,100)", b.parseQueueCounts)
	harness.PositiveFlag(&b.outages, "outages", "number of outages")
	flag.DurationVar(&b.down, "down", 20*time.Second, "minimum duration of an outage; after 20s the interval between reconnects no longer grows")
	harness.RunOnCluster(b.measureEnvironments)
}

// benchmark has the values of the flags.
type benchmark struct {
	queueCounts []int
	outages     int
	down        time.Duration
}

func (b *benchmark) parseQueueCounts(text string) error {
	b.queueCounts = nil
	for size := range strings.SplitSeq(text, ",") {
		queues, err := strconv.Atoi(size)
		if err != nil || queues < 1 {
			return fmt.Errorf("%q is not a number of Queues", size)
		}
		b.queueCounts = append(b.queueCounts, queues)
	}
	return nil
}

func (b *benchmark) measureEnvironments(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	var missed []error
	for _, queues := range b.queueCounts {
		env := &environment{Environment: harness.Environment(fmt.Sprintf("bench-outage-%d", queues)), queues: queues}
		results, err := env.measureOutages(ctx, c, operatorBinary, b.outages, b.down)
		if err != nil {
			return fmt.Errorf("%d Queues: %w", env.queues, err)
		}
		missed = append(missed, printReport(env, results))
	}
	return errors.Join(missed...)
}
