package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// Results beyond cachedNamespaces, or older than namespaceCacheTTL, are dropped and computed again.
const (
	cachedNamespaces  = 1024
	namespaceCacheTTL = 10 * time.Minute
)

// NamespaceCache stores a result that was computed from the objects of a namespace until Invalidate. Otherwise, with thousands
// of objects, each reconciliation would list and sort the same objects. Its methods are safe for concurrent use.
type NamespaceCache[T any] struct {
	compute func(ctx context.Context, namespace string) (T, error)

	mutex   sync.Mutex
	results *cache.LRUExpireCache
}

// namespaceResult computes its value when it is first read. If Invalidate removes it during the computation, only earlier
// readers get the value.
type namespaceResult[T any] struct {
	mutex    sync.Mutex
	computed bool
	value    T
}

// NewNamespaceCache returns an empty cache. Call Invalidate after each change that affects the result of the function.
func NewNamespaceCache[T any](compute func(ctx context.Context, namespace string) (T, error)) *NamespaceCache[T] {
	return &NamespaceCache[T]{compute: compute, results: cache.NewLRUExpireCache(cachedNamespaces)}
}

// Get returns the result for a namespace. It is shared, and must not be changed.
func (c *NamespaceCache[T]) Get(ctx context.Context, namespace string) (T, error) {
	result := c.resultOf(namespace)
	result.mutex.Lock()
	defer result.mutex.Unlock()
	if result.computed {
		return result.value, nil
	}
	value, err := c.compute(ctx, namespace)
	if err != nil {
		return value, err
	}
	result.value, result.computed = value, true
	return value, nil
}

func (c *NamespaceCache[T]) resultOf(namespace string) *namespaceResult[T] {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if stored, found := c.results.Get(namespace); found {
		if result, ok := stored.(*namespaceResult[T]); ok {
			return result
		}
	}
	result := &namespaceResult[T]{}
	c.results.Add(namespace, result, namespaceCacheTTL)
	return result
}

// Invalidate makes the next Get compute the result again. Call it after an object of the namespace changed, and before objects
// are reconciled because of the change.
func (c *NamespaceCache[T]) Invalidate(namespace string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.results.Remove(namespace)
}
