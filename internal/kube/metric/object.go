package metric

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
