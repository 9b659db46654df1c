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
// kube-system, which exists as long as its cluster, unless another value is given.
type ClusterID struct {
	mu sync.Mutex
	id string
}

// NewClusterID returns the ID that is derived from a value, instead of the UID of kube-system; empty: from that UID.
func NewClusterID(value string) *ClusterID {
	if value == "" {
		return &ClusterID{}
	}
	return &ClusterID{id: broker.ClusterID(value)}
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
		return "", fmt.Errorf("reading the namespace %s, whose UID identifies the cluster on brokers unless --cluster-id is set: %w", metav1.NamespaceSystem, err)
	}
	c.id = broker.ClusterID(string(ns.UID))
	return c.id, nil
}
