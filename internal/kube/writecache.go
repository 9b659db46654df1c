package kube

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WriteCache remembers what this process last wrote of each object until the cache shows
// it, so that a pass which follows at once does not decide on less than is known and
// then run into a conflict.
//
// It is a shortcut, not a source of truth: what it holds may be as stale as any cache,
// and writes stay guarded by their resource version.
//
// controller-runtime's EnableReadYourWritesConsistency does the same for a cache of one
// scope; it does not support a list of namespaces. When it does, this goes.
type WriteCache[T client.Object] struct {
	mu      sync.Mutex
	written map[types.NamespacedName]T
}

// NewWriteCache returns an empty Latest.
func NewWriteCache[T client.Object]() *WriteCache[T] {
	return &WriteCache[T]{written: map[types.NamespacedName]T{}}
}

// Record remembers the object as the API server returned it.
func (l *WriteCache[T]) Record(object T) {
	written := object.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has its original's type
	written.SetManagedFields(nil)          // as in the cache: nobody reads them, and they are large
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[client.ObjectKeyFromObject(object)] = written
}

// Newest returns the newer of the cached object and what was written, and forgets the
// latter once the cache has caught up. The result is the caller's.
func (l *WriteCache[T]) Newest(cached T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	written, ok := l.written[key]
	if !ok {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(written.GetResourceVersion(), cached.GetResourceVersion()); err == nil && order > 0 && written.GetUID() == cached.GetUID() {
		return written.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has its original's type
	}
	delete(l.written, key)
	return cached
}

// Forget drops what is remembered of an object that is gone.
func (l *WriteCache[T]) Forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.written, key)
}
