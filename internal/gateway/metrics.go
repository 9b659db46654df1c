package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics have no names of namespaces or queues in their labels, which clients could choose.
type metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	jobs     *prometheus.CounterVec
	reviews  *prometheus.CounterVec
	refused  prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	f := promauto.With(registry)
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "yardmaster_gateway_requests_total", Help: "Number of requests by status code and reason; the reason is empty for those that succeeded.",
		}, []string{"code", "reason"}),
		duration: f.NewHistogram(prometheus.HistogramOpts{
			Name: "yardmaster_gateway_request_duration_seconds", Help: "Time in seconds from the header of a request to its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}),
		jobs: f.NewCounterVec(prometheus.CounterOpts{
			Name: "yardmaster_gateway_jobs_total", Help: "Number of jobs by result: stored, duplicate, canceled or failed.",
		}, []string{"result"}),
		reviews: f.NewCounterVec(prometheus.CounterOpts{
			Name: "yardmaster_gateway_reviews_total", Help: "Number of reviews that the API server was asked for, by kind: token or access.",
		}, []string{"kind"}),
		refused: f.NewCounter(prometheus.CounterOpts{
			Name: "yardmaster_gateway_connections_refused_total", Help: "Number of connections that were refused or closed because there were too many.",
		}),
	}
}

// The results of jobs.
const (
	resultStored    = "stored"
	resultDuplicate = "duplicate"
	resultCanceled  = "canceled"
	resultFailed    = "failed"
)
