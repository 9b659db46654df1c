package informer

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// access is whether the API server lets an informer list and watch. A manager starts its controllers when all caches have synced, so an
// informer of one namespace would keep the operator from working in all others: a user who deletes a RoleBinding there could stop it.
// Therefore, a refused informer counts as synced, but its objects are unknown: reads fail until it has listed them.
type access struct {
	mu sync.Mutex
	// namespace of the requests; empty if they are for all namespaces.
	namespace string
	// refusal is the last refusal; nil after the API server has accepted a watch.
	refusal error
	// wasRefused is true from the first refusal on.
	wasRefused bool
}

// accept records that the API server has accepted a watch. A list alone does not show that the informer may do everything that it needs.
func (a *access) accept() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal = nil
}

// fail records the error of a request. Only a refusal shows something about the permission: an API server that does not answer, or has
// just started, may grant it.
func (a *access) fail(err error) {
	if !apierrors.IsForbidden(err) || decision.ClassOf(err) != decision.PermissionMissing {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal, a.wasRefused = err, true
}

// last returns the namespace, and the last refusal.
func (a *access) last() (namespace string, refusal error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.namespace, a.refusal
}

func (a *access) hasBeenRefused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wasRefused
}

type accessKey struct{}

// RecordNamespaces returns a transport that records the namespace of each request of an informer. An informer gets functions for
// its requests, and cannot know the namespace otherwise.
func RecordNamespaces(next http.RoundTripper) http.RoundTripper { return namespaceRecorder{next} }

type namespaceRecorder struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n namespaceRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if a, ok := request.Context().Value(accessKey{}).(*access); ok {
		a.mu.Lock()
		a.namespace = namespaceOf(request.URL.Path)
		a.mu.Unlock()
	}
	return n.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (n namespaceRecorder) WrappedRoundTripper() http.RoundTripper { return n.next }

// namespaceOf returns the namespace in the path of a collection, which ends with /namespaces/a/pods; empty for all namespaces.
func namespaceOf(path string) string {
	parts := strings.Split(path, "/")
	if n := len(parts); n >= 3 && parts[n-3] == "namespaces" {
		return parts[n-2]
	}
	return ""
}

// accesses are those of the running informers.
type accesses struct {
	mu      sync.Mutex
	running map[*access]bool
}

// informers is global, as is the registry of metrics.
var informers = &accesses{running: map[*access]bool{}}

func init() { metrics.Registry.MustRegister(informers) } //nolint:gochecknoinits // one collector for all informers

func (s *accesses) add(a *access) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[a] = true
}

func (s *accesses) remove(a *access) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, a)
}

func (s *accesses) all() []*access {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.running))
}

var watchRefused = prometheus.NewDesc("yardmaster_watch_refused",
	"Kinds of objects, once for each cache, that the API server refuses to list or watch in a namespace.", []string{"namespace"}, nil)

// Describe implements prometheus.Collector.
func (*accesses) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- watchRefused }

// Collect implements prometheus.Collector.
func (s *accesses) Collect(collected chan<- prometheus.Metric) {
	counts := map[string]float64{}
	for _, a := range s.all() {
		if namespace, refusal := a.last(); refusal != nil {
			counts[namespace]++
		}
	}
	for namespace, count := range counts {
		collected <- prometheus.MustNewConstMetric(watchRefused, prometheus.GaugeValue, count, namespace)
	}
}

// CheckAccess returns an error if the API server refuses all informers of the process: the operator cannot work in any namespace.
// It is a healthz.Checker.
func CheckAccess(*http.Request) error { return informers.check() }

func (s *accesses) check() (refusal error) {
	for _, a := range s.all() {
		if _, refusal = a.last(); refusal == nil {
			return nil
		}
	}
	if refusal != nil {
		return fmt.Errorf("no namespace can be watched: %w", refusal)
	}
	return nil
}

var errNotListed = errors.New("the objects have not been listed yet")

// unlisted returns why the objects are unknown; nil after they have been listed.
func (i *recoveringInformer) unlisted() error {
	if i.SharedIndexInformer.HasSynced() {
		return nil
	}
	if _, refusal := i.access.last(); refusal != nil {
		return refusal
	}
	return errNotListed
}

// HasSynced implements cache.SharedIndexInformer. It is also true for a refused informer. HasSyncedChecker waits for the list.
func (i *recoveringInformer) HasSynced() bool {
	return i.SharedIndexInformer.HasSynced() || i.access.hasBeenRefused()
}

// AddEventHandlerWithOptions implements cache.SharedIndexInformer. The sources of controllers wait for the handlers that they add with it.
func (i *recoveringInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	added, err := i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
	if err != nil {
		return nil, err
	}
	return registration{added, i}, nil
}

// RemoveEventHandler implements cache.SharedIndexInformer.
func (i *recoveringInformer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	if r, ok := handle.(registration); ok {
		handle = r.ResourceEventHandlerRegistration
	}
	return i.SharedIndexInformer.RemoveEventHandler(handle)
}

// registration is a handler for which a manager does not wait if the informer is refused.
type registration struct {
	cache.ResourceEventHandlerRegistration

	informer *recoveringInformer
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r registration) HasSynced() bool {
	return r.ResourceEventHandlerRegistration.HasSynced() || r.informer.unlisted() != nil && r.informer.HasSynced()
}

// GetIndexer implements cache.SharedIndexInformer. controller-runtime reads from it.
func (i *recoveringInformer) GetIndexer() cache.Indexer {
	return listedIndexer{i.SharedIndexInformer.GetIndexer(), i}
}

// listedIndexer fails to read objects that have not been listed. Only a list of all namespaces, which has no error, leaves them out.
type listedIndexer struct {
	cache.Indexer

	informer *recoveringInformer
}

// GetByKey implements cache.Store.
func (l listedIndexer) GetByKey(key string) (any, bool, error) {
	if err := l.informer.unlisted(); err != nil {
		return nil, false, err
	}
	return l.Indexer.GetByKey(key)
}

// ByIndex implements cache.Indexer.
func (l listedIndexer) ByIndex(name, value string) ([]any, error) {
	if err := l.informer.unlisted(); err != nil {
		return nil, err
	}
	return l.Indexer.ByIndex(name, value)
}
