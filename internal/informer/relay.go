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

// relay is a store for the Reflector that fills it, and a server for who lists and watches
// it. A new list of the Reflector's is passed on as what has changed since: the watch goes on.
type relay struct {
	transform cache.TransformFunc
	// done is closed when nobody takes events any more.
	done <-chan struct{}

	events chan watch.Event
	// filled is closed when the first list is known.
	filled chan struct{}
	// lists is how many there were. Only the Reflector's goroutine uses it.
	lists int

	mu sync.Mutex
	// known are the objects by their keys, as they are passed on, and version that of the
	// last list.
	known   map[string]runtime.Object
	version string
}

var (
	_ cache.TransformingStore        = &relay{}
	_ cache.ListerWatcherWithContext = &relay{}
)

func newRelay() *relay {
	return &relay{filled: make(chan struct{}), events: make(chan watch.Event), known: map[string]runtime.Object{}}
}

// errStopped ends what nobody waits for any more.
var errStopped = errors.New("the informer is stopped")

// Add implements cache.ReflectorStore.
func (r *relay) Add(object any) error { return r.pass(watch.Added, object) }

// Update implements cache.ReflectorStore.
func (r *relay) Update(object any) error { return r.pass(watch.Modified, object) }

// Delete implements cache.ReflectorStore.
func (r *relay) Delete(object any) error { return r.pass(watch.Deleted, object) }

// Resync implements cache.ReflectorStore. Who watches does that by itself.
func (*relay) Resync() error { return nil }

// Transformer implements cache.TransformingStore: lists are transformed as they come in.
func (r *relay) Transformer() cache.TransformFunc { return r.transform }

func (r *relay) pass(kind watch.EventType, raw any) error {
	key, object, err := r.read(raw)
	if err != nil {
		return err
	}
	r.know(kind, key, object)
	return r.send(kind, object)
}

func (r *relay) know(kind watch.EventType, key string, object runtime.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind == watch.Deleted {
		delete(r.known, key)
		return
	}
	r.known[key] = object
}

func (r *relay) send(kind watch.EventType, object runtime.Object) error {
	select {
	case r.events <- watch.Event{Type: kind, Object: object}:
		return nil
	case <-r.done:
		return errStopped
	}
}

// read is an object as it is passed on, and its key.
func (r *relay) read(raw any) (string, runtime.Object, error) {
	if r.transform != nil { // to transform twice what a list has already changes nothing
		transformed, err := r.transform(raw)
		if err != nil {
			return "", nil, fmt.Errorf("transforming an object: %w", err)
		}
		raw = transformed
	}
	object, is := raw.(runtime.Object)
	if !is {
		return "", nil, fmt.Errorf("%T is no object", raw)
	}
	key, err := cache.MetaNamespaceKeyFunc(object)
	return key, object, err
}

// Replace implements cache.ReflectorStore.
func (r *relay) Replace(list []any, resourceVersion string) error {
	now := make(map[string]runtime.Object, len(list))
	for _, raw := range list {
		key, object, err := r.read(raw)
		if err != nil {
			return err
		}
		now[key] = object
	}
	changes := r.replace(now, resourceVersion)
	r.lists++
	if r.lists == 1 {
		close(r.filled)
		return nil
	}
	for _, change := range changes {
		if err := r.send(change.Type, change.Object); err != nil {
			return err
		}
	}
	return nil
}

// replace is what differs between what is known and a new list, which is known from then on.
func (r *relay) replace(now map[string]runtime.Object, version string) []watch.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []watch.Event
	for key, object := range r.known {
		if _, there := now[key]; !there {
			changes = append(changes, watch.Event{Type: watch.Deleted, Object: object})
		}
	}
	for key, object := range now {
		was, there := r.known[key]
		switch {
		case !there:
			changes = append(changes, watch.Event{Type: watch.Added, Object: object})
		case sameVersion(was, object):
			now[key] = was // it is in the cache already
		default:
			changes = append(changes, watch.Event{Type: watch.Modified, Object: object})
		}
	}
	r.known, r.version = now, version
	return changes
}

func sameVersion(a, b runtime.Object) bool {
	one, err := meta.Accessor(a)
	if err != nil {
		return false
	}
	other, err := meta.Accessor(b)
	return err == nil && one.GetUID() == other.GetUID() && one.GetResourceVersion() == other.GetResourceVersion()
}

// IsWatchListSemanticsUnSupported says that a list is to be asked for.
func (*relay) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (r *relay) List(options metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWatcherWithContext. It is asked for once, since the
// watch behind it never ends. A change that comes in meanwhile is in the list, and told again.
func (r *relay) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	select {
	case <-r.filled:
	case <-r.done:
		return nil, errStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: r.version}}
	for _, object := range r.known {
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
	}
	return list, nil
}

// Watch implements cache.ListerWatcher.
func (r *relay) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(context.Background(), options)
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (r *relay) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return r, nil
}

// ResultChan implements watch.Interface.
func (r *relay) ResultChan() <-chan watch.Event { return r.events }

// Stop implements watch.Interface. What is not taken waits, or goes with the informer.
func (*relay) Stop() {}
