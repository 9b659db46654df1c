package kube

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Store remembers a value for each object of one kind, in this process only. A value belongs to one UID: it is dropped when
// another object takes the name, or when Forget is called because the object no longer exists. Values are shortcuts, never a
// source of truth: after a restart the store is empty. All methods are safe for concurrent use.
type Store[V any] struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]storeEntry[V]
}

type storeEntry[V any] struct {
	uid   types.UID
	value V
}

// NewStore returns an empty Store.
func NewStore[V any]() *Store[V] {
	return &Store[V]{entries: map[types.NamespacedName]storeEntry[V]{}}
}

// Get returns the value of an object, or the zero value.
func (s *Store[V]) Get(object client.Object) (V, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, found := s.entries[client.ObjectKeyFromObject(object)]
	if !found || entry.uid != object.GetUID() {
		return *new(V), false
	}
	return entry.value, true
}

// Set replaces the value of an object.
func (s *Store[V]) Set(object client.Object, value V) {
	s.Update(object, func(v *V) { *v = value })
}

// Update changes the value of an object, starting from the zero value if it has none. change is called under the store's lock
// and must not call the store.
func (s *Store[V]) Update(object client.Object, change func(*V)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(object)
	entry := s.entries[key]
	if entry.uid != object.GetUID() {
		entry = storeEntry[V]{uid: object.GetUID()}
	}
	change(&entry.value)
	s.entries[key] = entry
}

// Delete drops the value of an object.
func (s *Store[V]) Delete(object client.Object) {
	s.DeleteObjectIf(object, func(V) bool { return true })
}

// DeleteObjectIf drops the value of an object if it satisfies a condition. The condition is called under the store's lock and
// must not call the store.
func (s *Store[V]) DeleteObjectIf(object client.Object, condition func(value V) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(object)
	if entry, found := s.entries[key]; found && entry.uid == object.GetUID() && condition(entry.value) {
		delete(s.entries, key)
	}
}

// Forget drops the value of any object of this name, and returns it.
func (s *Store[V]) Forget(key types.NamespacedName) (V, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, found := s.entries[key]
	delete(s.entries, key)
	return entry.value, found
}

// DeleteIf drops the values that satisfy a condition, and returns the number of remaining values. The condition is called under
// the store's lock and must not call the store.
func (s *Store[V]) DeleteIf(condition func(value V) bool) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.entries, func(_ types.NamespacedName, entry storeEntry[V]) bool { return condition(entry.value) })
	return len(s.entries)
}

// Each calls do for every value, under the store's lock, until do returns false. do must not call the store.
func (s *Store[V]) Each(do func(key types.NamespacedName, uid types.UID, value V) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, entry := range s.entries {
		if !do(key, entry.uid, entry.value) {
			return
		}
	}
}
