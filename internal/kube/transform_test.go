package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

func TestOfALargeObjectTheCacheKeepsFewFields(t *testing.T) {
	transform := TrimLarge(isLargeConfigMap, func(c *corev1.ConfigMap) { c.Data = nil })
	text := strings.Repeat("x", LargeBytes)
	for title, row := range map[string]struct {
		data, annotations, wantAnnotations map[string]string
		wantTrimmed                        bool
	}{
		"a small object": {
			map[string]string{"a": "b"}, map[string]string{"note": "n", corev1.LastAppliedConfigAnnotation: text}, map[string]string{"note": "n"}, false,
		},
		"a large object": {
			map[string]string{"a": text},
			map[string]string{"note": "n", v1alpha1.AnnotationApproval: "{}"},
			map[string]string{v1alpha1.AnnotationApproval: "{}", annotationTrimmed: ""},
			true,
		},
		"large annotations": {
			map[string]string{"a": "b"},
			map[string]string{"note": text, v1alpha1.AnnotationApproval: text},
			map[string]string{v1alpha1.AnnotationApproval: text[:maxAnnotationBytes], annotationTrimmed: ""},
			true,
		},
	} {
		t.Run(title, func(t *testing.T) {
			object, err := transform(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}, Data: row.data})
			if err != nil {
				t.Fatal(err)
			}
			cached := object.(*corev1.ConfigMap)
			if diff := cmp.Diff(row.wantAnnotations, cached.Annotations); diff != "" || isTrimmed(cached) != row.wantTrimmed || (cached.Data == nil) != row.wantTrimmed {
				t.Errorf("the cache has data: %t; annotations (-want, +got):\n%s", cached.Data != nil, diff)
			}
		})
	}
}
