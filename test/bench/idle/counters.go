package main

import (
	"context"
	"net/http"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// counters are what the operator counts of itself.
type counters struct {
	// requests to the API server, and those of them that write.
	requests, writes float64
	// passes over Queues and WorkerPools.
	queuePasses, poolPasses float64
}

func (c counters) since(before counters) counters {
	return counters{
		requests: c.requests - before.requests, writes: c.writes - before.writes,
		queuePasses: c.queuePasses - before.queuePasses, poolPasses: c.poolPasses - before.poolPasses,
	}
}

// count reads the operator's metrics.
func count(ctx context.Context) (counters, error) {
	families, err := harness.Metrics(ctx)
	if err != nil {
		return counters{}, err
	}
	var c counters
	for _, metric := range families["rest_client_requests_total"].GetMetric() {
		c.requests += metric.GetCounter().GetValue()
		if harness.Label(metric, "method") != http.MethodGet {
			c.writes += metric.GetCounter().GetValue()
		}
	}
	for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
		switch harness.Label(metric, "controller") {
		case "queue":
			c.queuePasses += metric.GetCounter().GetValue()
		case "workerpool":
			c.poolPasses += metric.GetCounter().GetValue()
		}
	}
	return c, nil
}
