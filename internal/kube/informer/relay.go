package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// eventRelay is the store of a Reflector and the source of an informer, which lists and watches it. It relays a new list of the
// Reflector as the differences from the known objects, so that the informer's watch never ends.
type eventRelay struct {
	transform cache.TransformFunc
	// done is closed when nobody receives events any more.
	done <-chan struct{}

	events chan watch.Event
	// firstListDone is closed after the first list.
	firstListDone chan struct{}
	// listCount is the number of lists. Only the Reflector's goroutine uses it.
	listCount int

	mu sync.Mutex
	// knownObjects are the relayed objects by key. version is the resourceVersion of the last list.
	knownObjects map[string]knownObject
	version      string
}

var (
	_ cache.TransformingStore        = &eventRelay{}
	_ cache.ListerWatcherWithContext = &eventRelay{}
)

// errStopped ends calls after the informer was stopped.
var errStopped = errors.New("the informer is stopped")

// Add implements cache.ReflectorStore.
func (r *eventRelay) Add(object any) error { return r.relayEvent(watch.Added, object) }

// Update implements cache.ReflectorStore.
func (r *eventRelay) Update(object any) error { return r.relayEvent(watch.Modified, object) }

// Delete implements cache.ReflectorStore.
func (r *eventRelay) Delete(object any) error { return r.relayEvent(watch.Deleted, object) }

// Resync implements cache.ReflectorStore. The informer resyncs by itself.
func (*eventRelay) Resync() error { return nil }

// Transformer implements cache.TransformingStore: the Reflector transforms the objects of lists.
func (r *eventRelay) Transformer() cache.TransformFunc { return r.transform }

func (r *eventRelay) relayEvent(kind watch.EventType, raw any) error {
	key, object, err := r.transformObject(raw)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if was, found := r.knownObjects[key]; found {
		was.release()
		delete(r.knownObjects, key)
	}
	if kind != watch.Deleted {
		r.knownObjects[key] = newKnownObject(object)
	}
	r.mu.Unlock()
	return r.sendEvent(watch.Event{Type: kind, Object: object})
}

func (r *eventRelay) sendEvent(event watch.Event) error {
	select {
	case r.events <- event:
		return nil
	case <-r.done:
		return errStopped
	}
}

// transformObject returns the key and the transformed object.
func (r *eventRelay) transformObject(raw any) (string, runtime.Object, error) {
	if r.transform != nil { // transforming an object of a list twice changes nothing
		transformed, err := r.transform(raw)
		if err != nil {
			return "", nil, fmt.Errorf("transforming an object: %w", err)
		}
		raw = transformed
	}
	object, ok := raw.(runtime.Object)
	if !ok {
		return "", nil, fmt.Errorf("%T is not an object", raw)
	}
	key, err := cache.MetaNamespaceKeyFunc(object)
	return key, object, err
}

// Replace implements cache.ReflectorStore.
func (r *eventRelay) Replace(list []any, resourceVersion string) error {
	now := make(map[string]knownObject, len(list))
	for _, raw := range list {
		key, object, err := r.transformObject(raw)
		if err != nil {
			return err
		}
		now[key] = newKnownObject(object)
	}
	changes := r.replaceKnownObjects(now, resourceVersion)
	r.listCount++
	if r.listCount == 1 {
		close(r.firstListDone)
		return nil
	}
	for _, change := range changes {
		if err := r.sendEvent(change); err != nil {
			return err
		}
	}
	return nil
}

// replaceKnownObjects replaces the known objects with a new list and returns the differences.
func (r *eventRelay) replaceKnownObjects(now map[string]knownObject, version string) []watch.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []watch.Event
	for key, object := range r.knownObjects {
		if _, found := now[key]; !found {
			changes = append(changes, watch.Event{Type: watch.Deleted, Object: object.Object})
		}
	}
	for key, object := range now {
		was, found := r.knownObjects[key]
		switch {
		case !found:
			changes = append(changes, watch.Event{Type: watch.Added, Object: object.Object})
		case isSameVersion(was.Object, object.Object):
			object.Object = was.Object // the cache already has it
			now[key] = object
		default:
			changes = append(changes, watch.Event{Type: watch.Modified, Object: object.Object})
		}
	}
	r.releaseAll()
	r.knownObjects, r.version = now, version
	return changes
}

func (r *eventRelay) releaseAll() {
	for _, object := range r.knownObjects {
		object.release()
	}
}

func isSameVersion(a, b runtime.Object) bool {
	one, err := meta.Accessor(a)
	if err != nil {
		return false
	}
	other, err := meta.Accessor(b)
	return err == nil && one.GetUID() == other.GetUID() && one.GetResourceVersion() == other.GetResourceVersion()
}

// IsWatchListSemanticsUnSupported makes the informer start with a list.
func (*eventRelay) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (r *eventRelay) List(options metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWatcherWithContext. The informer calls it only once, because its watch never ends. A
// change during the call is in the list and is relayed again.
func (r *eventRelay) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	select {
	case <-r.firstListDone:
	case <-r.done:
		return nil, errStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: r.version}}
	for _, object := range r.knownObjects {
		list.Items = append(list.Items, runtime.RawExtension{Object: object.Object})
	}
	return list, nil
}

// Watch implements cache.ListerWatcher.
func (r *eventRelay) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(context.Background(), options)
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (r *eventRelay) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return r, nil
}

// ResultChan implements watch.Interface.
func (r *eventRelay) ResultChan() <-chan watch.Event { return r.events }

// Stop implements watch.Interface. Events that nobody receives are dropped when done is closed.
func (*eventRelay) Stop() {}
