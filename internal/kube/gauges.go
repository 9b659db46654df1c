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

// maxLabels is how many labels a gauge of Sums may have.
const maxLabels = 4

// GaugeSums are gauges that objects are summed up in. Names of objects are not among their
// labels: there may be thousands.
type GaugeSums map[gaugeKey]int64

type gaugeKey struct {
	gauge  *prometheus.Desc
	labels [maxLabels]string
	number int
}

// Add adds to the gauge with these values of its labels, of which it may have four.
func (s GaugeSums) Add(gauge *prometheus.Desc, amount int64, labels ...string) {
	key := gaugeKey{gauge: gauge, number: len(labels)}
	copy(key.labels[:], labels)
	s[key] += amount
}

// AddReady counts an object by its namespace and by the status and the reason of its
// condition Ready.
func (s GaugeSums) AddReady(gauge *prometheus.Desc, object client.Object, conditions []metav1.Condition) {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if ready == nil {
		ready = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending}
	}
	s.Add(gauge, 1, object.GetNamespace(), string(ready.Status), ready.Reason)
}

// GaugeCollector sums up, when scraped, what a list of objects in the cache says.
type GaugeCollector[L client.ObjectList] struct {
	Reader client.Reader
	// NewList makes an empty list, and Sum adds what a full one says.
	NewList func() L
	Sum     func(GaugeSums, L)
	// Gauges that may come of it.
	Gauges []*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c GaugeCollector[L]) Describe(descriptions chan<- *prometheus.Desc) {
	for _, gauge := range c.Gauges {
		descriptions <- gauge
	}
}

// Collect implements prometheus.Collector. Without a list there are no gauges; all others
// are still told.
func (c GaugeCollector[L]) Collect(collected chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list := c.NewList()
	if err := c.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Summing up what is in the cache", "list", fmt.Sprintf("%T", list))
		return
	}
	sums := GaugeSums{}
	c.Sum(sums, list)
	for key, value := range sums {
		collected <- prometheus.MustNewConstMetric(key.gauge, prometheus.GaugeValue, float64(value), key.labels[:key.number]...)
	}
}
