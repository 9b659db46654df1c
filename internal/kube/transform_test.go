package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestTrimObject(t *testing.T) {
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "orders", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	queue.Status.Conditions = append(make([]metav1.Condition, 0, 4), metav1.Condition{Type: v1alpha1.ConditionReady})
	want := queue.DeepCopy()
	want.ManagedFields = nil

	object, err := TrimObject(queue)
	require.NoError(t, err)
	trimmed := object.(*v1alpha1.Queue)
	require.Equal(t, want, trimmed)
	require.Equal(t, len(trimmed.Status.Conditions), cap(trimmed.Status.Conditions))
}

func TestOfALargeObjectTheCacheKeepsFewFields(t *testing.T) {
	transform := TrimLarge(func(c *corev1.ConfigMap) { c.Data = nil })
	text := strings.Repeat("x", LargeBytes)
	many := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, v1alpha1.LabelStep: "build"}
	owners, finalizers := []metav1.OwnerReference{{Name: text}}, []string{}
	for i := range 2000 {
		many[fmt.Sprintf("label-%03d", i)] = "value"
		finalizers = append(finalizers, fmt.Sprintf("finalizer-%d", i))
	}
	for title, row := range map[string]struct {
		meta            metav1.ObjectMeta
		data            map[string]string
		wantAnnotations map[string]string
		wantTrimmed     bool
	}{
		"a small object": {
			metav1.ObjectMeta{Annotations: map[string]string{"note": "n", corev1.LastAppliedConfigAnnotation: text}},
			map[string]string{"a": "b"},
			map[string]string{"note": "n"},
			false,
		},
		"a large object": {
			metav1.ObjectMeta{Annotations: map[string]string{"note": "n", v1alpha1.AnnotationApproval: "{}"}},
			map[string]string{"a": text},
			map[string]string{v1alpha1.AnnotationApproval: "{}", annotationTrimmed: ""},
			true,
		},
		"large annotations": {
			metav1.ObjectMeta{Annotations: map[string]string{"note": text, v1alpha1.AnnotationApproval: text, v1alpha1.AnnotationRun: "1"}},
			nil,
			map[string]string{v1alpha1.AnnotationRun: "1", annotationTrimmed: ""},
			true,
		},
		"many labels":            {metav1.ObjectMeta{Labels: many}, nil, map[string]string{annotationTrimmed: ""}, true},
		"many finalizers":        {metav1.ObjectMeta{Finalizers: finalizers}, nil, map[string]string{annotationTrimmed: ""}, true},
		"a long owner reference": {metav1.ObjectMeta{OwnerReferences: owners}, nil, map[string]string{annotationTrimmed: ""}, true},
	} {
		t.Run(title, func(t *testing.T) {
			var object any = &corev1.ConfigMap{ObjectMeta: *row.meta.DeepCopy(), Data: row.data}
			for range 2 { // an object of a list is transformed twice
				var err error
				if object, err = transform(object); err != nil {
					t.Fatal(err)
				}
			}
			cached := object.(*corev1.ConfigMap)
			if diff := cmp.Diff(row.wantAnnotations, cached.Annotations); diff != "" || isTrimmed(cached) != row.wantTrimmed {
				t.Errorf("trimmed: %t; annotations (-want, +got):\n%s", isTrimmed(cached), diff)
			}
			if size := decision.MemoryOf(cached); size > LargeBytes/2 {
				t.Errorf("the cache keeps %d bytes", size)
			}
			require.True(t, row.meta.Labels == nil || cached.Labels[v1alpha1.LabelStep] == "build", "the labels are %v", cached.Labels)
		})
	}
}
