package pool

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestARevisionHasDriftedIfWhatWasAskedForIsNoLongerThere(t *testing.T) {
	for title, test := range map[string]struct {
		change func(d *appsv1.Deployment)
		want   bool
	}{
		"as it was made": {func(*appsv1.Deployment) {}, false},
		"with the API server's defaults": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst
			d.Spec.Template.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
		}, false},
		"with other replicas": {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(7)) }, false},
		"with a container that somebody added": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "mesh"})
		}, false},
		"with a label that somebody added":     {func(d *appsv1.Deployment) { d.Labels["team"] = "mail" }, false},
		"with another image":                   {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "worker:hand" }, true},
		"without its variables":                {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Env = nil }, true},
		"without the label it is found by":     {func(d *appsv1.Deployment) { delete(d.Labels, LabelRevision) }, true},
		"with another image told to people":    {func(d *appsv1.Deployment) { d.Annotations[AnnotationImage] = "worker:0" }, true},
		"without the label its Pods are found": {func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, LabelWorkerPool) }, true},
	} {
		t.Run(title, func(t *testing.T) {
			wanted := newEvaluation(newTestPool(1).Observation).updated.workload
			found := wanted.DeepCopyObject().(*appsv1.Deployment)
			test.change(found)
			if got := HasDrifted(wanted, found); got != test.want {
				t.Errorf("drifted: %t, want %t", got, test.want)
			}
		})
	}
}

func TestTheRevisionOfTheSpecIsKeptOnceItIsThere(t *testing.T) {
	if keep := Decide(newTestPool(1).Observation).CurrentWorkload; keep != nil {
		t.Errorf("kept before it is made: %s", keep.GetName())
	}
	s := newTestPool(1).withCurrentRevision(1)
	if keep := Decide(s.Observation).CurrentWorkload; keep == nil || keep.GetName() != s.Revisions[0].Name {
		t.Errorf("%v is kept, want %s", keep, s.Revisions[0].Name)
	}
	s.Pool.Spec.Workload = v1alpha1.WorkloadStatefulSet
	if HasDrifted(newEvaluation(s.Observation).updated.workload, newEvaluation(s.Observation).updated.workload) {
		t.Error("a StatefulSet has drifted from itself")
	}
}
