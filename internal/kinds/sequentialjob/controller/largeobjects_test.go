package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestCacheKeepsFewBytesOfALargeSequentialJob(t *testing.T) {
	large := testbuilder.SequentialJob("a", "ns").Obj()
	for i := range 100 {
		large.Spec.Containers = append(large.Spec.Containers, testbuilder.Step(fmt.Sprintf("s%d", i),
			testbuilder.ChangeContainer(func(c *corev1.Container) { c.Args = []string{strings.Repeat("x", 10_000)} })))
	}
	outputs := testbuilder.SequentialJob("b", "ns").Step("build").Obj()
	for i := range 100 {
		outputs.Status.Steps = append(outputs.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprintf("s%d", i), Output: strings.Repeat("x", 4000)})
	}
	annotated := testbuilder.SequentialJob("c", "ns").Step("build").Obj()
	annotated.Annotations = map[string]string{"note": strings.Repeat("x", 200_000)}
	for _, sj := range []*v1alpha1.SequentialJob{large, outputs, annotated} {
		if _, err := TrimSequentialJob(sj); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(sj)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > 4<<10 || !isTrimmed(sj) {
			t.Errorf("the cache keeps %d bytes of %s; trimmed: %t", len(raw), sj.Name, isTrimmed(sj))
		}
	}
}

func TestCacheKeepsSmallSequentialJobsWithoutWhatNoDecisionReads(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Obj()
	sj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	sj.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "x"}
	if _, err := TrimSequentialJob(sj); err != nil {
		t.Fatal(err)
	}
	if isTrimmed(sj) || sj.ManagedFields != nil || len(sj.Annotations) != 1 {
		t.Errorf("the cache has %+v, %d steps", sj.ObjectMeta, len(sj.Spec.Containers))
	}
}
