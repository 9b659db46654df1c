// Package metric declares metrics in the registry that the manager serves.
package metric

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Register registers a collector.
func Register(collector prometheus.Collector) error {
	if err := metrics.Registry.Register(collector); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// NewCounter returns a registered counter.
func NewCounter(name, help string) prometheus.Counter {
	return promauto.With(metrics.Registry).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// NewCounterVec returns a registered counter with labels.
func NewCounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(metrics.Registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// NewGauge returns a registered gauge.
func NewGauge(name, help string) prometheus.Gauge {
	return promauto.With(metrics.Registry).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// NewGaugeVec returns a registered gauge with labels.
func NewGaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(metrics.Registry).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// NewHistogram returns a registered histogram with these upper bounds of its buckets.
func NewHistogram(name, help string, buckets ...float64) prometheus.Histogram {
	return promauto.With(metrics.Registry).NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}
