package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAStoredValueBelongsToOneUID(t *testing.T) {
	object := func(uid types.UID) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: uid}}
	}
	first, second := object("1"), object("2")
	s := NewStore[int]()
	s.Update(first, func(v *int) { *v += 7 })
	if v, found := s.Get(first); !found || v != 7 {
		t.Errorf("stored 7, got %d, %v", v, found)
	}
	if v, found := s.Get(second); found {
		t.Errorf("another object of that name has the value %d", v)
	}
	s.Delete(second)
	if _, found := s.Get(first); !found {
		t.Error("deleting another object's value deleted this one's")
	}
	s.Update(second, func(v *int) { *v++ })
	if v, _ := s.Get(second); v != 1 {
		t.Errorf("another object of that name began with a value of the first: %d", v)
	}
	if _, found := s.Get(first); found {
		t.Error("the first object's value outlived it")
	}
	if v, found := s.Forget(client.ObjectKeyFromObject(second)); !found || v != 1 {
		t.Errorf("forgot %d, %v", v, found)
	}
	if _, found := s.Get(second); found {
		t.Error("a forgotten value is still there")
	}
}
