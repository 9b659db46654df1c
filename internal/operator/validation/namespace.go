package validation

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// namespaceReadTimeout is much shorter than the webhook's timeout of 5 s.
	namespaceReadTimeout = time.Second
	// Labels of up to maxNamespaces namespaces are remembered for namespaceMaxAge.
	namespaceMaxAge = 30 * time.Second
	maxNamespaces   = 1024
)

// namespaceLabels reads the labels of namespaces, for warnings.
type namespaceLabels struct {
	reader client.Reader
	recent *cache.LRUExpireCache
}

func newNamespaceLabels(reader client.Reader) *namespaceLabels {
	return &namespaceLabels{reader, cache.NewLRUExpireCache(maxNamespaces)}
}

// get returns the labels of a namespace, nil if they are unknown.
func (n *namespaceLabels) get(ctx context.Context, name string) map[string]string {
	if labels, found := n.recent.Get(name); found {
		return labels.(map[string]string) //nolint:forcetypeassert // the only type that is stored
	}
	ctx, cancel := context.WithTimeout(ctx, namespaceReadTimeout)
	defer cancel()
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := n.reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil
	}
	n.recent.Add(name, namespace.Labels, namespaceMaxAge)
	return namespace.Labels
}
