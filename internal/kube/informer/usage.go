package informer

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// reportedNamespaces is the number of namespaces that a scrape names. A cluster may have thousands.
const reportedNamespaces = 10

// usage is the memory of the objects in all caches of the process by namespace.
type usage struct {
	mu          sync.Mutex
	byNamespace map[string]int
}

// cached is global, as is the registry of metrics.
var cached = &usage{byNamespace: map[string]int{}}

func init() { metrics.Registry.MustRegister(cached) } //nolint:gochecknoinits // one collector for all informers

func (u *usage) add(namespace string, bytes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byNamespace[namespace] += bytes; u.byNamespace[namespace] <= 0 {
		delete(u.byNamespace, namespace)
	}
}

var (
	cacheBytes     = prometheus.NewDesc("yardmaster_cache_bytes", "Estimated memory of all cached objects.", nil, nil)
	namespaceBytes = prometheus.NewDesc("yardmaster_cache_namespace_bytes",
		"Estimated memory of the cached objects of a namespace, for the ten namespaces with the most.", []string{"namespace"}, nil)
)

// Describe implements prometheus.Collector.
func (*usage) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- cacheBytes
	descriptions <- namespaceBytes
}

// Collect implements prometheus.Collector.
func (u *usage) Collect(collected chan<- prometheus.Metric) {
	u.mu.Lock()
	all := maps.Clone(u.byNamespace)
	u.mu.Unlock()
	total := 0
	for _, bytes := range all {
		total += bytes
	}
	collected <- prometheus.MustNewConstMetric(cacheBytes, prometheus.GaugeValue, float64(total))
	largest := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(all[b]-all[a], cmp.Compare(a, b)) })
	for _, namespace := range largest[:min(len(largest), reportedNamespaces)] {
		collected <- prometheus.MustNewConstMetric(namespaceBytes, prometheus.GaugeValue, float64(all[namespace]), namespace)
	}
}

// knownObject is an object that counts in the usage of its namespace until release.
type knownObject struct {
	runtime.Object

	namespace string
	bytes     int
}

func newKnownObject(object runtime.Object) knownObject {
	known := knownObject{Object: object, bytes: decision.MemoryOf(object)}
	if accessor, err := meta.Accessor(object); err == nil {
		known.namespace = accessor.GetNamespace()
	}
	cached.add(known.namespace, known.bytes)
	return known
}

func (k knownObject) release() { cached.add(k.namespace, -k.bytes) }
