package main

import (
	"context"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// operatorCounters are the counters in the operator's metrics.
type operatorCounters struct {
	// requests to the API server, and the writes among them.
	requests, writes float64
	// reconciliations of Queues and WorkerPools.
	queueReconciliations, poolReconciliations float64
}

func (c operatorCounters) difference(before operatorCounters) operatorCounters {
	return operatorCounters{
		requests: c.requests - before.requests, writes: c.writes - before.writes,
		queueReconciliations: c.queueReconciliations - before.queueReconciliations, poolReconciliations: c.poolReconciliations - before.poolReconciliations,
	}
}

// readCounters reads the operator's metrics.
func readCounters(ctx context.Context, operator *testenv.Operator) (operatorCounters, error) {
	families, err := harness.OperatorMetrics(ctx, operator)
	if err != nil {
		return operatorCounters{}, err
	}
	var c operatorCounters
	c.requests, c.writes = harness.APIRequests(families)
	for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
		switch harness.MetricLabel(metric, "controller") {
		case "queue":
			c.queueReconciliations += metric.GetCounter().GetValue()
		case "workerpool":
			c.poolReconciliations += metric.GetCounter().GetValue()
		}
	}
	return c, nil
}
