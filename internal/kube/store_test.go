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

func TestTheLastValueOfAnObjectIsStoredUntilItIsDeleted(t *testing.T) {
	s, pod := NewStore[int](), podWithUID("a", "1")
	s.Set(pod, 1)
	s.Set(pod, 2)
	if v, found := s.Get(pod); !found || v != 2 {
		t.Errorf("stored 2, got %d, %v", v, found)
	}
	s.Delete(pod)
	if _, found := s.Get(pod); found {
		t.Error("the value remains")
	}
}

func TestForgetDropsTheValueOfAnyUID(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "a"}
	s := NewStore[int]()
	s.Set(podWithUID("a", "1"), 7)
	if v, found := s.Forget(key); !found || v != 7 {
		t.Errorf("forgot %d, %v, want 7", v, found)
	}
	if v, found := s.Forget(key); found || v != 0 {
		t.Errorf("forgot %d twice", v)
	}
}

func TestEachVisitsEveryValueUntilItIsStopped(t *testing.T) {
	s := NewStore[int]()
	s.Set(podWithUID("a", "1"), 1)
	s.Set(podWithUID("b", "2"), 2)
	sum := 0
	s.Each(func(key types.NamespacedName, uid types.UID, value int) bool {
		if want := map[string]types.UID{"a": "1", "b": "2"}[key.Name]; uid != want {
			t.Errorf("%s has the UID %s, want %s", key.Name, uid, want)
		}
		sum += value
		return true
	})
	if sum != 3 {
		t.Errorf("the values add up to %d, want 3", sum)
	}
	visits := 0
	s.Each(func(types.NamespacedName, types.UID, int) bool { visits++; return false })
	if visits != 1 {
		t.Errorf("%d visits, want 1", visits)
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
