package kube

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WriteCache remembers the last version of each object that this process wrote, until the cache
// has it. Without that, the next reconciliation would decide on an outdated object and cause a
// conflict.
//
// It is a shortcut, not a source of truth: its objects may be as stale as those of any cache, and
// writes are still guarded by their resourceVersion.
//
// controller-runtime's EnableReadYourWritesConsistency does the same, but does not support a cache
// limited to several namespaces. WriteCache can be deleted when it does.
type WriteCache[T client.Object] struct{ written *Store[T] }

// NewWriteCache returns an empty WriteCache.
func NewWriteCache[T client.Object]() *WriteCache[T] { return &WriteCache[T]{NewStore[T]()} }

// Record remembers the object as the API server returned it.
func (c *WriteCache[T]) Record(object T) {
	written := object.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has its original's type
	written.SetManagedFields(nil)          // large, not read, and removed from cached objects too
	c.written.Set(object, written)
}

// Newest returns the newer one of the cached object and the written object, which it forgets once the
// cache has caught up. The caller may change the result.
func (c *WriteCache[T]) Newest(cached T) T {
	written, found := c.written.Get(cached)
	if !found {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(written.GetResourceVersion(), cached.GetResourceVersion()); err == nil && order > 0 {
		return written.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has its original's type
	}
	c.written.Delete(cached)
	return cached
}

// Forget drops the written version of an object that no longer exists.
func (c *WriteCache[T]) Forget(key types.NamespacedName) { c.written.Forget(key) }
