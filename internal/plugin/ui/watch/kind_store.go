package watch

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// kindStore receives the objects of a kind in a place.
type kindStore struct {
	*Store
	watchedPlace
}

var _ cache.TransformingStore = &kindStore{}

// Transformer implements cache.TransformingStore: the reflector slims the objects of a list while it reads it.
func (*kindStore) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		view.Slim(object)
		return object, nil
	}
}

// Add implements cache.ReflectorStore.
func (k *kindStore) Add(object any) error { return k.Update(object) }

// Update implements cache.ReflectorStore.
func (k *kindStore) Update(object any) error {
	view.Slim(object)
	entry := view.NewEntry(object)
	if entry == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(entry)
	k.notify()
	return nil
}

// put stores an object. The caller holds the lock.
func (k *kindStore) put(entry *view.Entry) {
	key := types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}
	k.objects[k.kind][key] = entry
	k.history.add(k.kind, key, entry.Object, k.now())
}

// Delete implements cache.ReflectorStore.
func (k *kindStore) Delete(object any) error {
	seen, ok := object.(client.Object)
	if !ok {
		return nil
	}
	key := client.ObjectKeyFromObject(seen)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.objects[k.kind], key)
	k.history.remove(k.kind, key)
	k.notify()
	return nil
}

// Replace implements cache.ReflectorStore.
func (k *kindStore) Replace(objects []any, _ string) error {
	var entries []*view.Entry
	for _, object := range objects {
		view.Slim(object)
		if entry := view.NewEntry(object); entry != nil {
			entries = append(entries, entry)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(k.watchedPlace)
	for _, entry := range entries {
		k.put(entry)
	}
	k.watches[k.watchedPlace] = view.WatchState{Synced: true} // a list succeeded, so there is no problem any more
	k.notify()
	return nil
}

// Resync implements cache.ReflectorStore.
func (*kindStore) Resync() error { return nil }
