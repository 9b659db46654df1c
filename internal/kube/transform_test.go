package kube

import (
	"fmt"
	"strings"
	"testing"

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
	for i := range 2000 {
		many[fmt.Sprintf("label-%03d", i)] = "value"
	}
	for title, row := range map[string]struct{ annotations, labels, data, want map[string]string }{
		"a small object": {
			annotations: map[string]string{"note": "n", corev1.LastAppliedConfigAnnotation: text}, data: map[string]string{"a": "b"},
			want: map[string]string{"note": "n"},
		},
		"a large object": {
			annotations: map[string]string{"note": "n", v1alpha1.AnnotationApproval: "{}"}, data: map[string]string{"a": text},
			want: map[string]string{v1alpha1.AnnotationApproval: "{}", annotationTrimmed: ""},
		},
		"large annotations": {
			annotations: map[string]string{"note": text, v1alpha1.AnnotationApproval: text, v1alpha1.AnnotationRun: "1"},
			want:        map[string]string{v1alpha1.AnnotationRun: "1", annotationTrimmed: ""},
		},
		"many labels": {labels: many, want: map[string]string{annotationTrimmed: ""}},
	} {
		t.Run(title, func(t *testing.T) {
			metadata := metav1.ObjectMeta{Annotations: row.annotations, Labels: row.labels}
			var object any = &corev1.ConfigMap{ObjectMeta: *metadata.DeepCopy(), Data: row.data}
			for range 2 { // an object of a list is transformed twice
				var err error
				object, err = transform(object)
				require.NoError(t, err)
			}
			cached := object.(*corev1.ConfigMap)
			require.Equal(t, row.want, cached.Annotations)
			require.True(t, decision.MemoryOf(cached) <= LargeBytes/2, "the cache keeps %d bytes", decision.MemoryOf(cached))
			require.True(t, row.labels == nil || cached.Labels[v1alpha1.LabelStep] == "build", "the labels are %v", cached.Labels)
		})
	}
}
