package harness

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/yardmaster/yardmaster/internal/clock"
)

// metricsAddress is where the operator serves metrics.
var metricsAddress = sync.OnceValue(freeAddress)

// MetricsFlags returns the flags of an operator that serves metrics for OperatorMetrics.
func MetricsFlags() []string {
	return []string{"--metrics-bind-address=" + metricsAddress(), "--metrics-secure=false"}
}

// OperatorMetrics returns the operator's metrics.
func OperatorMetrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress()+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(response.Body)
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

// WaitForRest waits until an operator with MetricsFlags has written nothing for a time, and fails after the limit.
func WaitForRest(ctx context.Context, quiet, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for before := -1.0; ; {
		metrics, err := OperatorMetrics(ctx)
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

// freeAddress returns a loopback address on which nothing listens, so that several benchmarks can run
// on one machine.
func freeAddress() string {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
