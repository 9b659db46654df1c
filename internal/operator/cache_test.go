package operator

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// A tenant can fill a quota with objects of the size that the API server accepts. The cache keeps little of each.
func TestTheCacheKeepsFewBytesOfLargeObjects(t *testing.T) {
	options, err := cacheOptions(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 900_000)
	raw := func(text string) []byte { return []byte(fmt.Sprintf("{%q: %q}", "text", text)) }
	steps := testbuilder.SequentialJob("steps", "ns").Obj()
	for i := range 100 {
		steps.Spec.Containers = append(steps.Spec.Containers, testbuilder.Step(fmt.Sprintf("s%d", i),
			testbuilder.ChangeContainer(func(c *corev1.Container) { c.Args = []string{text[:9000]} })))
	}
	outputs := testbuilder.SequentialJob("outputs", "ns").Step("build").Obj()
	for i := range 100 {
		outputs.Status.Steps = append(outputs.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprintf("s%d", i), Output: text[:4000]})
	}
	environment := map[string]v1alpha1.EnvironmentValue{}
	for i := range 25 {
		environment[fmt.Sprintf("V%d", i)] = v1alpha1.EnvironmentValue(text[:32_000])
	}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Args: []string{text}}}}}
	for title, object := range map[string]client.Object{
		"a SequentialJob with long steps":          steps,
		"a SequentialJob with many outputs":        outputs,
		"a Schedule of SequentialJobs":             &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{SequentialJob: &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: raw(text)}}}},
		"a Schedule of AgenticSessions":            &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{AgenticSession: &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: raw(text)}}}},
		"a Schedule of messages":                   &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{Message: &v1alpha1.ScheduledMessage{Payload: &apiextensionsv1.JSON{Raw: raw(text)}}}},
		"a Schedule of messages with headers":      &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{Message: &v1alpha1.ScheduledMessage{Headers: map[string]string{"a": text}}}},
		"an AgenticSession with a long prompt":     &v1alpha1.AgenticSession{Spec: v1alpha1.AgenticSessionSpec{Prompt: text[:65_536]}},
		"an AgenticSession with a large env":       &v1alpha1.AgenticSession{Spec: v1alpha1.AgenticSessionSpec{EnvironmentVariables: environment}},
		"a WorkerPool with a large template":       &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{Template: template}},
		"a SequentialJob with large annotations":   &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text[:200_000]}}},
		"a Schedule with large annotations":        &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text[:200_000]}}},
		"an AgenticSession with large annotations": &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text[:200_000]}}},
		"a WorkerPool with large annotations":      &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text[:200_000]}}},
		"a Queue with large annotations":           &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text[:200_000]}}},
	} {
		t.Run(title, func(t *testing.T) {
			var transformed any
			for kind, byObject := range options.ByObject {
				if reflect.TypeOf(kind) == reflect.TypeOf(object) {
					if transformed, err = byObject.Transform(object); err != nil {
						t.Fatal(err)
					}
				}
			}
			kept, err := json.Marshal(transformed)
			if err != nil {
				t.Fatal(err)
			}
			if transformed == nil || len(kept) > 4<<10 {
				t.Errorf("the cache keeps %d bytes", len(kept))
			}
		})
	}
}
