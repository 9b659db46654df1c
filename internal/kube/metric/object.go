package metric

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namesOmitted is global, as is the registry.
var namesOmitted atomic.Bool

// OmitObjectNames chooses whether labels with names of objects are empty, so that a metric has the sum of
// all objects with the same other labels. Call it before metrics are counted.
func OmitObjectNames(omit bool) { namesOmitted.Store(omit) }

// ObjectNamesOmitted reports what OmitObjectNames chose.
func ObjectNamesOmitted() bool { return namesOmitted.Load() }

// ObjectName is the value of a label with the name of an object. Only kinds of which a namespace has few
// objects may be labels.
func ObjectName(object client.Object) string {
	if ObjectNamesOmitted() {
		return ""
	}
	return object.GetName()
}

// ObjectCounter counts what happens to objects of a kind, by namespace and name. If names are omitted, it
// counts what happens to all of them.
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

// Forget removes the counters of an object that does not exist.
func (c ObjectCounter) Forget(object types.NamespacedName) {
	c.DeletePartialMatch(prometheus.Labels{namespaceLabel: object.Namespace, c.nameLabel: object.Name})
}
