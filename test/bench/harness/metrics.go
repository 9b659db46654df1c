package harness

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// OperatorMetrics returns the metrics of an operator with testenv.MetricsFlags.
func OperatorMetrics(ctx context.Context, operator *testenv.Operator) (map[string]*dto.MetricFamily, error) {
	metrics, err := operator.Metrics(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(metrics))
}

// APIRequests returns the number of an operator's requests to the API server, and of the writes among them.
func APIRequests(metrics map[string]*dto.MetricFamily) (requests, writes float64) {
	for _, metric := range metrics["rest_client_requests_total"].GetMetric() {
		requests += metric.GetCounter().GetValue()
		if MetricLabel(metric, "method") != http.MethodGet {
			writes += metric.GetCounter().GetValue()
		}
	}
	return requests, writes
}

// WaitForRest waits until an operator with testenv.MetricsFlags has written nothing for a time, and fails after the limit.
func WaitForRest(ctx context.Context, operator *testenv.Operator, quiet, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for before := -1.0; ; {
		metrics, err := OperatorMetrics(ctx, operator)
		if err != nil {
			return err
		}
		_, writes := APIRequests(metrics)
		if writes == before {
			return nil
		}
		before = writes
		if err := clock.SleepContext(ctx, quiet); err != nil {
			return err
		}
	}
}

// MetricLabel returns the value of a metric's label, or the empty string if the metric has no
// such label.
func MetricLabel(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
