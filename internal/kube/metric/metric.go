// Package metric declares metrics in the registry that the manager serves.
package metric

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// namesOmitted is global, as is the registry.
var namesOmitted atomic.Bool

// OmitObjectNames decides whether labels with names of objects are empty, so that a metric has the sum of all objects with the
// same other labels. Call it before metrics are counted.
func OmitObjectNames(omit bool) { namesOmitted.Store(omit) }

// ObjectNamesOmitted returns the decision of OmitObjectNames.
func ObjectNamesOmitted() bool { return namesOmitted.Load() }

// ObjectName returns the value of a label with the name of an object. Use it only for kinds with few objects in a namespace.
func ObjectName(object client.Object) string {
	if ObjectNamesOmitted() {
		return ""
	}
	return object.GetName()
}

// ObjectCounter counts for each object of a kind, by namespace and name. If names are omitted, it counts for all objects
// together.
type ObjectCounter struct {
	*prometheus.CounterVec
	nameLabel string
}

const namespaceLabel = "namespace"

// NewObjectCounter returns a registered counter. nameLabel is the label with the name of an object.
func NewObjectCounter(name, help, nameLabel string, labels ...string) ObjectCounter {
	return ObjectCounter{NewCounterVec(name, help, append([]string{namespaceLabel, nameLabel}, labels...)...), nameLabel}
}

// Of returns the counter of an object with these values of the other labels.
func (c ObjectCounter) Of(object client.Object, values ...string) prometheus.Counter {
	namespace := object.GetNamespace()
	if ObjectNamesOmitted() {
		namespace = "" // counters of deleted namespaces would stay
	}
	return c.WithLabelValues(append([]string{namespace, ObjectName(object)}, values...)...)
}

// Forget removes the counters of an object that no longer exists.
func (c ObjectCounter) Forget(object types.NamespacedName) {
	c.DeletePartialMatch(prometheus.Labels{namespaceLabel: object.Namespace, c.nameLabel: object.Name})
}
