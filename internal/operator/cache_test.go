package operator

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// A tenant can fill a quota with objects of the size that the API server accepts. The cache keeps little of each.
func TestTheCacheKeepsFewBytesOfLargeObjects(t *testing.T) {
	options := require.Call(cacheOptions(nil, nil)).Succeeds(t)
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
	many := map[string]string{}
	for i := range 20_000 {
		many[fmt.Sprintf("label-%d", i)] = text[:20]
	}
	objects := map[string]client.Object{
		"a SequentialJob with long steps":       steps,
		"a SequentialJob with many outputs":     outputs,
		"a Schedule of SequentialJobs":          &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{SequentialJob: &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: raw(text)}}}},
		"a Schedule of AgenticSessions":         &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{AgenticSession: &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: raw(text)}}}},
		"a Schedule of messages":                &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{Message: &v1alpha1.ScheduledMessage{Payload: &apiextensionsv1.JSON{Raw: raw(text)}}}},
		"a Schedule of messages with headers":   &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{Message: &v1alpha1.ScheduledMessage{Headers: map[string]string{"a": text}}}},
		"an AgenticSession with a long prompt":  &v1alpha1.AgenticSession{Spec: v1alpha1.AgenticSessionSpec{Prompt: text[:65_536]}},
		"an AgenticSession with a large env":    &v1alpha1.AgenticSession{Spec: v1alpha1.AgenticSessionSpec{EnvironmentVariables: environment}},
		"a WorkerPool with a large template":    &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{Template: template}},
		"a SessionRunner with a large template": &v1alpha1.SessionRunner{Spec: v1alpha1.SessionRunnerSpec{Template: template}},
		"a SessionRunner with many keys":        &v1alpha1.SessionRunner{Spec: v1alpha1.SessionRunnerSpec{Allowed: v1alpha1.SessionAllowed{Secrets: make([]v1alpha1.SessionSource, 10_000)}}},
		"a Policy with a large selector":        &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Selector: &metav1.LabelSelector{MatchLabels: many}}},
		"a Job with a large template":           &batchv1.Job{Spec: batchv1.JobSpec{Template: *template}},
		"a Job with a large selector":           &batchv1.Job{Spec: batchv1.JobSpec{Selector: &metav1.LabelSelector{MatchLabels: many}}},
		"a Pod with a large spec":               &corev1.Pod{Spec: template.Spec},
		"a Deployment with a large template":    &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: *template, Selector: &metav1.LabelSelector{MatchLabels: many}}},
		"a StatefulSet with a large template":   &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: *template}},
		"a StatefulSet with many claims":        &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: make([]corev1.PersistentVolumeClaim, 10_000)}},
		"a NetworkPolicy with many empty peers": &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: make([]networkingv1.NetworkPolicyPeer, 100_000)}}}},
		"a NetworkPolicy with a large selector": &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: many}}},
	}
	for kind := range options.ByObject {
		for title, metadata := range map[string]metav1.ObjectMeta{
			"large annotations":       {Annotations: map[string]string{"a": text[:200_000]}},
			"annotations of its own":  {Annotations: map[string]string{v1alpha1.Prefix + "a": text[:200_000]}},
			"an applied manifest":     {Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: text[:200_000]}},
			"many labels":             {Labels: many},
			"many finalizers":         {Finalizers: slices.Collect(maps.Keys(many))},
			"a long owner reference":  {OwnerReferences: []metav1.OwnerReference{{Name: text}}},
			"a field manager's field": {ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(text)}}},
		} {
			object := kind.DeepCopyObject().(client.Object)
			metadata.DeepCopyInto(object.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta))
			objects[fmt.Sprintf("%T with %s", kind, title)] = object
		}
	}
	for title, object := range objects {
		t.Run(title, func(t *testing.T) {
			transform := options.DefaultTransform
			for kind, byObject := range options.ByObject {
				if reflect.TypeOf(kind) == reflect.TypeOf(object) && byObject.Transform != nil {
					transform = byObject.Transform
				}
			}
			transformed := require.Call(transform(object)).Succeeds(t)
			require.True(t, transformed != nil && decision.MemoryOf(transformed) <= 16<<10, "the cache keeps %d bytes", decision.MemoryOf(transformed))
		})
	}
}

func TestTheCollectorTakesMoreMemoryOnlyUnderLoadAndBelowTheLimit(t *testing.T) {
	const mib = 1 << 20
	for name, row := range map[string]struct {
		live, limit int64
		// perSecond are the allocated bytes in each interval.
		perSecond []int64
		want      int
	}{
		"at rest":                         {40 * mib, 230 * mib, []int64{mib, mib}, targetAtRest},
		"under load":                      {24 * mib, 230 * mib, []int64{mib, 50 * mib}, targetUnderLoad},
		"under load, a larger heap":       {40 * mib, 230 * mib, []int64{mib, 50 * mib}, 60},
		"just below load":                 {40 * mib, 230 * mib, []int64{mib, 10*mib - mib/10}, targetAtRest},
		"soon after the load":             {24 * mib, 230 * mib, []int64{50 * mib, mib, mib}, targetUnderLoad},
		"long after the load":             {40 * mib, 230 * mib, append([]int64{50 * mib}, make([]int64, 10)...), targetAtRest},
		"load that comes back":            {24 * mib, 230 * mib, append(append([]int64{50 * mib}, make([]int64, 10)...), 50*mib), targetUnderLoad},
		"near the memory limit":           {120 * mib, 230 * mib, []int64{100 * mib}, targetAtRest},
		"without a memory limit":          {4000 * mib, 1 << 62, []int64{4000 * mib}, targetLargeHeaps},
		"without a collection yet":        {0, 230 * mib, []int64{mib}, targetUnderLoad},
		"a first measurement has no rate": {40 * mib, 230 * mib, nil, targetAtRest},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			allocated := uint64(1 << 40)
			state, target := collectorState{}.next(now, allocated, uint64(row.live), row.limit)
			for _, rate := range row.perSecond {
				now = now.Add(collectorInterval)
				allocated += uint64(rate) * uint64(collectorInterval/time.Second)
				state, target = state.next(now, allocated, uint64(row.live), row.limit)
			}
			require.Equal(t, row.want, target)
		})
	}
}
