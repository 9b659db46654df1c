package kube

import (
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func podWithUID(name string, uid types.UID) client.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}}
}

func TestAStoredValueBelongsToOneUID(t *testing.T) {
	first, second := podWithUID("a", "1"), podWithUID("a", "2")
	s := NewStore[int]()
	s.Update(first, func(v *int) { *v += 7 })
	if v, found := s.Get(first); !found || v != 7 {
		t.Errorf("stored 7, got %d, %v", v, found)
	}
	if v, found := s.Get(second); found || v != 0 {
		t.Errorf("another object with that name has the value %d", v)
	}
	s.Delete(second)
	if _, found := s.Get(first); !found {
		t.Error("deleting another object's value deleted this one's")
	}
	s.Update(second, func(v *int) { *v++ })
	if v, _ := s.Get(second); v != 1 {
		t.Errorf("another object with that name starts with the first one's value: %d", v)
	}
	if _, found := s.Get(first); found {
		t.Error("the first object's value remains after another object took its name")
	}
}

func TestConcurrentUpdatesOfAStoredValueAllCount(t *testing.T) {
	s := NewStore[int]()
	var updates sync.WaitGroup
	for range 100 {
		updates.Go(func() { s.Update(podWithUID("a", "1"), func(v *int) { *v++ }) })
	}
	updates.Wait()
	if v, _ := s.Get(podWithUID("a", "1")); v != 100 {
		t.Errorf("counted %d of 100 updates", v)
	}
}
