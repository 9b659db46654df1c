package workerpool

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestRevisionHasDriftedIfADesiredFieldChanged(t *testing.T) {
	for title, test := range map[string]struct {
		change func(d *appsv1.Deployment)
		want   bool
	}{
		"unchanged": {func(*appsv1.Deployment) {}, false},
		"defaults of the API server": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst
			worker := &d.Spec.Template.Spec.Containers[0]
			worker.TerminationMessagePath = "/dev/termination-log"
			worker.ReadinessProbe.FailureThreshold, worker.ReadinessProbe.HTTPGet.Scheme = 3, corev1.URISchemeHTTP
		}, false},
		"a slower readiness probe": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 60 }, true},
		"other replicas":           {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(7)) }, false},
		"an added container": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "mesh"})
		}, false},
		"an added label":            {func(d *appsv1.Deployment) { d.Labels["team"] = "mail" }, false},
		"another image":             {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "worker:hand" }, true},
		"no environment variables":  {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Env = nil }, true},
		"no revision label":         {func(d *appsv1.Deployment) { delete(d.Labels, LabelRevision) }, true},
		"another image annotation":  {func(d *appsv1.Deployment) { d.Annotations[AnnotationImage] = "worker:0" }, true},
		"no pool label on its Pods": {func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, LabelWorkerPool) }, true},
	} {
		desired := newFleet(newTestPool(1).Observation).updated.workload
		found := desired.DeepCopyObject().(*appsv1.Deployment)
		test.change(found)
		require.True(t, HasDrifted(desired, found) == test.want, "%s: drifted %t", title, !test.want)
	}
}

func TestUpdatedRevisionIsRestoredOnceItExists(t *testing.T) {
	require.True(t, Decide(newTestPool(1).Observation).CurrentWorkload == nil, "it is restored before it exists")
	s := newTestPool(1).withCurrentRevision(1)
	require.Equal(t, s.Revisions[0].Name, Decide(s.Observation).CurrentWorkload.GetName())
	s.Pool.Spec.Workload = v1alpha1.WorkloadStatefulSet
	workload := newFleet(s.Observation).updated.workload
	require.True(t, !HasDrifted(workload, workload), "a StatefulSet has drifted from itself")
}
