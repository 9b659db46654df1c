package integration

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func (s *sequenceTest) deleteSequence(options ...client.DeleteOption) {
	s.t.Helper()
	if err := cluster.Delete(s.t.Context(), s.sj, options...); err != nil {
		s.t.Fatal(err)
	}
}

func TestDeletionStopsTheRunningStepFirst(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("delete", "").Step("a").Step("b").Obj())
	pod := s.waitForPod("a")
	if !controllerutil.ContainsFinalizer(s.readSequence(), v1alpha1.SequentialJobFinalizer) {
		t.Error("a running sequence has no finalizer")
	}
	s.deleteSequence()
	s.waitUntilDeleted(s.sj)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err == nil {
		t.Error("the SequentialJob was deleted before its Pod")
	}
	s.wantEvent(v1alpha1.EventTerminated)
}

func TestOrphanDeletionKeepsTheJobs(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("orphan", "").Step("a").Obj())
	job := s.waitForJob("a")
	s.deleteSequence(client.PropagationPolicy(metav1.DeletePropagationOrphan))
	s.waitUntilDeleted(s.sj)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || !job.DeletionTimestamp.IsZero() {
		t.Errorf("the Job was not kept: %v", err)
	}
}

func TestSuspendedSequenceHasNoFinalizer(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("suspended", "").Step("a").SuspendImmediately().Obj())
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.waitForPod("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.waitForStep("a", v1alpha1.StepSuspended)
	s.waitUntil("no finalizer", func(sj *v1alpha1.SequentialJob) bool { return len(sj.Finalizers) == 0 })
	s.deleteSequence()
	s.waitUntilDeleted(s.sj)
}

func TestNamespaceDeletionRemovesTheRunningSequence(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{}
	ns.GenerateName = "deleted-"
	if err := cluster.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	s := createSequenceIn(t, ns.Name, testbuilder.SequentialJob("running", "").Step("a").Step("b").Obj())
	pod := s.waitForPod("a")
	if err := cluster.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	// A namespace's Pods are deleted first, and a Job's Pod is removed after the Job controller
	// has observed its end. A kubelet reports that end; a simulated node does not.
	poll.Until(t, "the Pod to be deleted", func() bool {
		return cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && !pod.DeletionTimestamp.IsZero()
	})
	s.terminatePod(pod, 143, "")
	s.waitUntilDeleted(s.sj)
	poll.Until(t, "its Jobs to be deleted", func() bool { return len(s.listJobs()) == 0 })
}

// Jobs are identified by their controller, not by labels.
func TestJobsOfOthersWithTheOperatorsLabelsAreKept(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("labels", "").Step("a").Obj())
	mine := s.waitForJob("a")
	unrelated := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "unrelated", Namespace: mine.Namespace, Labels: mine.Labels}}
	unrelated.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "a", Image: "registry.example/a:1"}},
	}}
	unrelated.Spec.Template.Annotations = map[string]string{simDuration: "1h"}
	if err := cluster.Create(t.Context(), unrelated); err != nil {
		t.Fatal(err)
	}
	s.deleteSequence()
	s.waitUntilDeleted(s.sj)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(unrelated), unrelated); err != nil || !unrelated.DeletionTimestamp.IsZero() {
		t.Errorf("the unrelated Job was deleted: %v", err)
	}
}
