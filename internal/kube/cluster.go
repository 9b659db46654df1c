package kube

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// ClusterID identifies the cluster on brokers that it shares with other clusters. It is derived from the UID of the namespace
// kube-system, which exists as long as its cluster.
type ClusterID struct {
	mu sync.Mutex
	id string
}

// Get returns the ID, which it reads once.
func (c *ClusterID) Get(ctx context.Context, live client.Reader) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != "" {
		return c.id, nil
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("reading the namespace %s, whose UID identifies the cluster on brokers: %w", metav1.NamespaceSystem, err)
	}
	c.id = broker.ClusterID(string(ns.UID))
	return c.id, nil
}
