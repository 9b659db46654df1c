package brokerconn

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

var (
	readSeconds = metric.NewHistogram("yardmaster_broker_stats_seconds",
		"Time to read the stats of a queue from its broker, or of a backlog source.",
		.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5)
	readErrors = metric.NewCounterVec("yardmaster_broker_stats_errors_total",
		"Number of failed reads of stats, by class of error.", "class")
	connections = prometheus.NewDesc("yardmaster_broker_connections",
		"Brokers that objects refer to, by state: Connected, Connecting, or the reason of the problem.", []string{"state"}, nil)
)

func recordRead(start time.Time, err error) {
	readSeconds.Observe(time.Since(start).Seconds())
	if err != nil {
		readErrors.WithLabelValues(string(broker.ClassOf(err))).Inc()
	}
}

// Describe implements prometheus.Collector.
func (*Manager) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- connections
	bounded.ClosedConnections.Describe(descriptions)
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(collected chan<- prometheus.Metric) {
	bounded.ClosedConnections.Collect(collected)
	states := map[string]int{}
	m.mu.Lock()
	for _, conn := range m.conns {
		state := "Connected"
		if _, err := conn.currentSession(); err != nil {
			state = "Connecting"
			if problem := (*brokeraccess.ConnectionError)(nil); errors.As(err, &problem) {
				state = problem.Reason
			}
		}
		states[state]++
	}
	m.mu.Unlock()
	for state, number := range states {
		collected <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(number), state)
	}
}
