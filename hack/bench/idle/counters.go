package main

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const metricsAddress = "127.0.0.1:18982"

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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", http.NoBody)
	if err != nil {
		return counters{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return counters{}, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return counters{}, err
	}
	var c counters
	for _, metric := range families["rest_client_requests_total"].GetMetric() {
		c.requests += metric.GetCounter().GetValue()
		if label(metric, "method") != http.MethodGet {
			c.writes += metric.GetCounter().GetValue()
		}
	}
	for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
		switch label(metric, "controller") {
		case "queue":
			c.queuePasses += metric.GetCounter().GetValue()
		case "workerpool":
			c.poolPasses += metric.GetCounter().GetValue()
		}
	}
	return c, nil
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
