package brokerconn

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/internal/broker"
)

var (
	requestSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_broker_figures_seconds",
		Help:    "Time to read the figures of a queue from its broker.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	})
	requestErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_broker_figures_errors_total",
		Help: "Readings of a queue's figures that failed, by class of error.",
	}, []string{"class"})
	connections = prometheus.NewDesc("yardmaster_broker_connections",
		"Brokers that objects refer to, by state: connected, or the reason why not.", []string{"state"}, nil)
)

func init() {
	metrics.Registry.MustRegister(requestSeconds, requestErrors)
}

func observeRequest(began time.Time, err error) {
	requestSeconds.Observe(time.Since(began).Seconds())
	if err != nil {
		requestErrors.WithLabelValues(string(broker.ClassOf(err))).Inc()
	}
}

// Describe implements prometheus.Collector.
func (*Manager) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- connections }

// Collect implements prometheus.Collector.
func (k *Manager) Collect(collected chan<- prometheus.Metric) {
	states := map[string]int{}
	k.mu.Lock()
	for _, line := range k.conns {
		states[line.connectionState()]++
	}
	k.mu.Unlock()
	for state, number := range states {
		collected <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(number), state)
	}
}

func (l *Conn) connectionState() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.problem != nil:
		return l.problem.Reason
	case l.engine == nil:
		return "Connecting"
	}
	return "Connected"
}
