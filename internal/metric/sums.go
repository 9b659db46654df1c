package metric

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

// maxLabels is the maximum number of labels of a gauge in Sums.
const maxLabels = 5

// NewSum describes a gauge that is computed from cached objects during each scrape.
func NewSum(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Sums adds up the values of gauges over many objects with the same labels.
type Sums map[sumKey]int64

type sumKey struct {
	gauge  *prometheus.Desc
	labels [maxLabels]string
	number int
}

// Add adds the amount to the gauge with these label values, at most five.
func (s Sums) Add(gauge *prometheus.Desc, amount int64, labels ...string) {
	key := sumKey{gauge: gauge, number: len(labels)}
	copy(key.labels[:], labels)
	s[key] += amount
}

// AddCondition counts an object by the status and reason of one of its conditions, after these labels.
func (s Sums) AddCondition(gauge *prometheus.Desc, conditions []metav1.Condition, kind string, labels ...string) {
	found := meta.FindStatusCondition(conditions, kind)
	if found == nil {
		found = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending}
	}
	s.Add(gauge, 1, append(labels, string(found.Status), found.Reason)...)
}

// sumCollector computes gauges from a list of cached objects during each scrape.
type sumCollector[L client.ObjectList] struct {
	cache  client.Reader
	empty  L
	add    func(Sums, L)
	gauges []*prometheus.Desc
}

// NewSumCollector returns a collector of gauges that add computes from the objects in the cache.
// list is an empty list of their kind.
func NewSumCollector[L client.ObjectList](cache client.Reader, list L, add func(Sums, L), gauges ...*prometheus.Desc) prometheus.Collector {
	return sumCollector[L]{cache, list, add, gauges}
}

// Describe implements prometheus.Collector.
func (c sumCollector[L]) Describe(descriptions chan<- *prometheus.Desc) {
	for _, gauge := range c.gauges {
		descriptions <- gauge
	}
}

// Collect implements prometheus.Collector. If the objects cannot be listed it collects no gauges, so
// that the other collectors' metrics are still served.
func (c sumCollector[L]) Collect(collected chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, _ := c.empty.DeepCopyObject().(L)
	if err := c.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Could not list the cached objects for metrics", "list", fmt.Sprintf("%T", list))
		return
	}
	sums := Sums{}
	c.add(sums, list)
	for key, value := range sums {
		collected <- prometheus.MustNewConstMetric(key.gauge, prometheus.GaugeValue, float64(value), key.labels[:key.number]...)
	}
}
