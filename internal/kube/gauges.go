package kube

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// maxGaugeLabels is the maximum number of labels of a gauge in GaugeSums.
const maxGaugeLabels = 4

// GaugeSums adds up the values of gauges over many objects. Names of objects must not be labels,
// because thousands of objects may exist.
type GaugeSums map[gaugeKey]int64

type gaugeKey struct {
	gauge  *prometheus.Desc
	labels [maxGaugeLabels]string
	number int
}

// Add adds the amount to the gauge with these label values, at most four.
func (s GaugeSums) Add(gauge *prometheus.Desc, amount int64, labels ...string) {
	key := gaugeKey{gauge: gauge, number: len(labels)}
	copy(key.labels[:], labels)
	s[key] += amount
}

// AddReady counts an object by namespace and by the status and reason of its condition Ready.
func (s GaugeSums) AddReady(gauge *prometheus.Desc, object client.Object, conditions []metav1.Condition) {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if ready == nil {
		ready = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending}
	}
	s.Add(gauge, 1, object.GetNamespace(), string(ready.Status), ready.Reason)
}

// GaugeCollector computes gauges from a list of cached objects during each scrape.
type GaugeCollector[L client.ObjectList] struct {
	Reader client.Reader
	// NewList returns an empty list. Sum adds up the values of a list.
	NewList func() L
	Sum     func(GaugeSums, L)
	// Gauges that Sum may add to.
	Gauges []*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c GaugeCollector[L]) Describe(descriptions chan<- *prometheus.Desc) {
	for _, gauge := range c.Gauges {
		descriptions <- gauge
	}
}

// Collect implements prometheus.Collector. If the objects cannot be listed it collects no gauges, so
// that the other collectors' metrics are still served.
func (c GaugeCollector[L]) Collect(collected chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list := c.NewList()
	if err := c.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Could not list the cached objects for metrics", "list", fmt.Sprintf("%T", list))
		return
	}
	sums := GaugeSums{}
	c.Sum(sums, list)
	for key, value := range sums {
		collected <- prometheus.MustNewConstMetric(key.gauge, prometheus.GaugeValue, float64(value), key.labels[:key.number]...)
	}
}
