package metric

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const maxLabels = 5

// Gauge is computed from cached objects during each scrape.
type Gauge struct {
	description *prometheus.Desc
	labels      []string
	// sorted are the indexes of the labels, sorted by their names, as scrapes have them.
	sorted []int
}

// NewSum describes a gauge with at most maxLabels labels.
func NewSum(name, help string, labels ...string) *Gauge {
	sorted := make([]int, len(labels))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return strings.Compare(labels[a], labels[b]) })
	return &Gauge{prometheus.NewDesc(name, help, labels, nil), labels, sorted}
}

// Sums adds up the values of gauges over many objects with the same labels.
type Sums map[sumKey]int64

type sumKey struct {
	gauge  *Gauge
	labels [maxLabels]string
}

// Add adds the amount to the gauge with these values of all its labels.
func (s Sums) Add(gauge *Gauge, amount int64, labels ...string) {
	key := sumKey{gauge: gauge}
	copy(key.labels[:], labels)
	s[key] += amount
}

// AddCondition counts an object by these labels, and the status and reason of one of its conditions.
func (s Sums) AddCondition(gauge *Gauge, conditions []metav1.Condition, kind string, labels ...string) {
	found := meta.FindStatusCondition(conditions, kind)
	if found == nil {
		found = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending}
	}
	s.Add(gauge, 1, append(labels, string(found.Status), found.Reason)...)
}

type sum struct {
	description *prometheus.Desc
	value       float64
	labels      []*dto.LabelPair // shared with other sums
}

// Desc implements prometheus.Metric.
func (s *sum) Desc() *prometheus.Desc { return s.description }

// Write implements prometheus.Metric.
func (s *sum) Write(metric *dto.Metric) error {
	metric.Label, metric.Gauge = s.labels, &dto.Gauge{Value: &s.value}
	return nil
}

// sumCollector computes gauges from a list of cached objects during each scrape.
type sumCollector[L client.ObjectList] struct {
	cache  client.Reader
	empty  L
	add    func(Sums, L)
	gauges []*Gauge
	// size is the number of sums in the previous scrape.
	size *atomic.Int64
}

// NewSumCollector returns a collector of gauges that add computes from the objects in the cache. list is an empty list of their
// kind.
func NewSumCollector[L client.ObjectList](cache client.Reader, list L, add func(Sums, L), gauges ...*Gauge) prometheus.Collector {
	return sumCollector[L]{cache, list, add, gauges, &atomic.Int64{}}
}

// Describe implements prometheus.Collector.
func (c sumCollector[L]) Describe(descriptions chan<- *prometheus.Desc) {
	for _, gauge := range c.gauges {
		descriptions <- gauge.description
	}
}

// Collect implements prometheus.Collector. If the objects cannot be listed it collects no gauges, so that the other collectors'
// metrics are still served.
func (c sumCollector[L]) Collect(collected chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, _ := c.empty.DeepCopyObject().(L)
	if err := c.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.Log.WithName("metrics").Error(err, "Could not list the cached objects for metrics", "list", fmt.Sprintf("%T", list))
		return
	}
	sums := make(Sums, c.size.Load())
	c.add(sums, list)
	c.size.Store(int64(len(sums)))
	// A fleet has ten sums for each WorkerPool: separate labels for each sum, as in constant metrics of the client library, take
	// 10 MB for 1,000 WorkerPools, in every scrape.
	pairs := map[[2]string]*dto.LabelPair{}
	for key, value := range sums {
		labels := make([]*dto.LabelPair, len(key.gauge.sorted))
		for i, index := range key.gauge.sorted {
			pair := [2]string{key.gauge.labels[index], key.labels[index]}
			if pairs[pair] == nil {
				pairs[pair] = &dto.LabelPair{Name: new(pair[0]), Value: new(pair[1])}
			}
			labels[i] = pairs[pair]
		}
		collected <- &sum{key.gauge.description, float64(value), labels}
	}
}
