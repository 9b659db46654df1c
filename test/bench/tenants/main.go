// Command tenants measures how much the objects of one tenant slow down another tenant, on a real control plane with a real NATS server.
//
//	go run ./test/bench/tenants                  10,000 objects of every kind
//	go run ./test/bench/tenants -objects 1000    1,000 of every kind
//
// It runs a release build of the operator with all its controllers. The first tenant's namespace gets the objects: its Queues refer to a
// broker that does not exist, and its Policies select all of its Queues and WorkerPools. In the namespace of the second tenant there is one
// object of each kind. Once the operator has reconciled all objects, the benchmark changes the spec of each of these repeatedly, and measures
// the time from the write until a watch shows a status with the new observedGeneration. Another measurement before the first tenant's objects
// exist is the baseline.
package main

import (
	"context"
	"flag"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	b := &benchmark{victim: "bench-tenant", flood: "bench-crowd", objects: 10_000, trials: 100}
	harness.PositiveFlag(&b.objects, "objects", "number of objects of each kind of the first tenant")
	harness.PositiveFlag(&b.trials, "trials", "number of measured spec changes of each kind")
	flag.DurationVar(&b.settle, "settle", 30*time.Second, "pause between the first reconciliations and the measurement")
	harness.RunOnCluster(b.measureTenants)
}

// benchmark contains the namespaces of both tenants.
type benchmark struct {
	victim, flood   harness.Environment
	objects, trials int
	settle          time.Duration
}

func (b *benchmark) measureTenants(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	_, end, err := b.victim.StartBroker(ctx, c, b.createProbes)
	if err != nil {
		return err
	}
	defer end()
	flags := append(testenv.MetricsFlags(), "--namespaces", string(b.victim+","+b.flood))
	operator, err := testenv.StartOperator(ctx, operatorBinary, c.Cluster, flags...)
	if err != nil {
		return err
	}
	defer operator.Stop()
	baseline, err := b.measure(ctx, c, operator)
	if err != nil {
		return err
	}
	if err := b.createCrowd(ctx, c); err != nil {
		return err
	}
	crowded, err := b.measure(ctx, c, operator)
	if err != nil {
		return err
	}
	return b.printReport(baseline, crowded)
}
