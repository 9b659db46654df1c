package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// WriteCache remembers the last version of each object that this process wrote, until the cache has it. Without it, the next
// reconciliation would decide on an outdated object and cause a conflict.
//
// It is a shortcut, not a source of truth: its objects may be as stale as the objects of any cache, and writes are still
// guarded by their resourceVersion.
//
// controller-runtime's EnableReadYourWritesConsistency does the same, but does not support a cache limited to several
// namespaces. WriteCache can be deleted when it does.
type WriteCache[T client.Object] struct {
	written *Store[writtenObject[T]]
	now     func() time.Time

	mu sync.Mutex
	// isExpiring means that expire will be called.
	isExpiring bool
}

type writtenObject[T client.Object] struct {
	object T
	at     time.Time
}

// maxWriteAge is how long a written object is used. The cache has it long before, unless etcd was restored from a backup: then
// the cache never has it, and its resourceVersion may be higher than that of every later version.
const maxWriteAge = 10 * time.Second

// NewWriteCache returns an empty WriteCache.
func NewWriteCache[T client.Object]() *WriteCache[T] {
	return &WriteCache[T]{written: NewStore[writtenObject[T]](), now: time.Now}
}

// Record remembers an object as returned by the API server, unless it is large: then each reconciliation reads it from there.
func (c *WriteCache[T]) Record(object T) {
	written := object.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has its original's type
	dropUnread(written)
	if decision.MemoryOf(written) > LargeBytes {
		return
	}
	c.written.Set(object, writtenObject[T]{written, c.now()})
	c.expireLater()
}

// UpdateStatus stores a changed status as the function UpdateStatus does, and remembers and returns the stored object.
func (c *WriteCache[T]) UpdateStatus(ctx context.Context, writer client.Client, object T, change func(T)) (T, error) {
	after := object.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has its original's type
	change(after)
	if err := UpdateStatus(ctx, writer, object, after); err != nil {
		return object, fmt.Errorf("updating status: %w", err)
	}
	if after.GetResourceVersion() != object.GetResourceVersion() {
		c.Record(after)
	}
	return after, nil
}

// SetFinalizer adds a finalizer to an object or removes it, if that is a change.
func (c *WriteCache[T]) SetFinalizer(ctx context.Context, writer client.Client, object T, finalizer string, present bool) error {
	if controllerutil.ContainsFinalizer(object, finalizer) == present {
		return nil
	}
	change := controllerutil.RemoveFinalizer
	if present {
		change = controllerutil.AddFinalizer
	}
	if err := c.PatchMetadata(ctx, writer, object, func(o client.Object) { change(o, finalizer) }); err != nil {
		return fmt.Errorf("patching the finalizer: %w", err)
	}
	return nil
}

// PatchMetadata changes the metadata of an object as the function PatchMetadata does, and remembers the stored object, unless
// it is about to disappear.
func (c *WriteCache[T]) PatchMetadata(ctx context.Context, writer client.Client, object T, change func(client.Object)) error {
	version := object.GetResourceVersion()
	if err := PatchMetadata(ctx, writer, object, change); err != nil {
		return err
	}
	if object.GetResourceVersion() != version && object.GetDeletionTimestamp().IsZero() {
		c.Record(object)
	}
	return nil
}

// expireLater calls expire after maxWriteAge, at most once at a time.
func (c *WriteCache[T]) expireLater() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isExpiring {
		return
	}
	c.isExpiring = true
	time.AfterFunc(maxWriteAge, c.expire)
}

// expire forgets the objects whose written version Newest would no longer use: objects at rest are not reconciled.
func (c *WriteCache[T]) expire() {
	c.mu.Lock()
	c.isExpiring = false
	c.mu.Unlock()
	expired := c.now().Add(-maxWriteAge)
	if c.written.DeleteIf(func(w writtenObject[T]) bool { return !w.at.After(expired) }) > 0 {
		c.expireLater()
	}
}

// Follow forgets each written version when the cache has it. Otherwise the versions of objects at rest, which are not
// reconciled again, are kept for maxWriteAge. A reconciliation that has just read the older version from the cache may decide
// on it, as with any cache: its writes fail.
func (c *WriteCache[T]) Follow(ctx context.Context, informers cache.Informers, kind T) error {
	informer, err := informers.GetInformer(ctx, kind)
	if err != nil {
		return fmt.Errorf("following the cache of %T: %w", kind, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, cached any) { c.forgetCached(cached) }})
	return err
}

func (c *WriteCache[T]) forgetCached(cached any) {
	object, isObject := cached.(T)
	if !isObject {
		return
	}
	c.written.DeleteObjectIf(object, func(w writtenObject[T]) bool { return !isNewer(w.object, object) })
}

// isNewer reports whether a version is newer than another version. It returns false for versions that cannot be compared.
func isNewer(version, other client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(version.GetResourceVersion(), other.GetResourceVersion())
	return err == nil && order > 0
}

// Newest returns the newer of the cached object and the written object, which it forgets once the cache has caught up. The
// caller may change the result.
func (c *WriteCache[T]) Newest(cached T) T {
	written, found := c.written.Get(cached)
	if !found {
		return cached
	}
	if isNewer(written.object, cached) && c.now().Sub(written.at) < maxWriteAge {
		return written.object.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has its original's type
	}
	c.written.Delete(cached)
	return cached
}

// Forget drops the written version of an object that no longer exists.
func (c *WriteCache[T]) Forget(key types.NamespacedName) { c.written.Forget(key) }
