package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsRunOneAfterAnother(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("transform").Step("load").Obj())
	for i, step := range []string{"extract", "transform", "load"} {
		s.waitForPod(step)
		if jobs := s.listJobs(); len(jobs) != i+1 {
			t.Fatalf("%d Jobs while step %s runs, want %d", len(jobs), step, i+1)
		}
		s.succeedStep(step)
	}
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonCompleted)
	s.wantCondition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonCompleted)
	if sequentialjob.FormatProgress(s.sj, false) != "3/3" || s.sj.Status.CompletionTime == nil {
		t.Errorf("progress %q, completion %v", sequentialjob.FormatProgress(s.sj, false), s.sj.Status.CompletionTime)
	}
	s.waitUntil("the finalizer to be removed", func(sj *v1alpha1.SequentialJob) bool {
		return !controllerutil.ContainsFinalizer(sj, v1alpha1.SequentialJobFinalizer)
	})
	for _, reason := range []string{v1alpha1.EventJobStarted, v1alpha1.EventJobCompleted, v1alpha1.EventCompleted} {
		s.wantEvent(reason)
	}
}

// deleteWorkspace deletes the workspace of a suspended run, after its first step.
func (s *sequenceTest) deleteWorkspace() *corev1.PersistentVolumeClaim {
	s.t.Helper()
	s.waitForPod("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseSuspended)
	claim := &corev1.PersistentVolumeClaim{}
	claim.Name, claim.Namespace = s.waitForJob("a").Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, s.sj.Namespace
	mustGet(s.t, client.ObjectKeyFromObject(claim), claim)
	if s.sj.Status.Workspace.UID != claim.UID {
		s.t.Errorf("the UID %q is recorded, want %q", s.sj.Status.Workspace.UID, claim.UID)
	}
	mustDelete(s.t, claim)
	return claim
}

func TestSequenceRestartsWithAnEmptyWorkspaceIfItsSpecSaysSo(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("restart", "").Step("a").Step("b").Workspace(v1alpha1.WorkspaceDelete).RecreateLostWorkspace().Obj())
	claim := s.deleteWorkspace()
	job := s.waitForJob("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.waitUntil("the second run", func(sj *v1alpha1.SequentialJob) bool {
		return sj.Status.Run == 2 && sj.Status.Workspace.UID != "" && sj.Status.Workspace.UID != claim.UID
	})
	s.wantEvent(v1alpha1.EventWorkspaceLost)
	s.waitUntilDeleted(job)
	s.succeedStep("a")
	s.succeedStep("b")
	s.waitForPhase(v1alpha1.PhaseCompleted)
}
