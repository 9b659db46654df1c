package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestTrimObject(t *testing.T) {
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "orders", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	queue.Status.Conditions = append(make([]metav1.Condition, 0, 4), metav1.Condition{Type: v1alpha1.ConditionReady})
	want := queue.DeepCopy()
	want.ManagedFields = nil

	object, err := TrimObject(queue)
	if err != nil {
		t.Fatal(err)
	}
	trimmed := object.(*v1alpha1.Queue)
	if diff := cmp.Diff(want, trimmed); diff != "" {
		t.Errorf("the object (-want, +got):\n%s", diff)
	}
	if conditions := trimmed.Status.Conditions; cap(conditions) > len(conditions) {
		t.Errorf("a list of %d has room for %d", len(conditions), cap(conditions))
	}
}
