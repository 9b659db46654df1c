package integration

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func (s *sequenceTest) deleteChildJob(job *batchv1.Job) {
	s.t.Helper()
	if err := cluster.Delete(s.t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		s.t.Fatal(err)
	}
}

func TestLostJobIsReplacedWithOnLostJobRerun(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("lost-rerun", "").Step("a").RerunLostJobs().Obj())
	first := s.waitForJob("a")
	s.deleteChildJob(first)
	s.waitUntil("a second attempt", func(*v1alpha1.SequentialJob) bool { return s.stepStatus("a").Attempt == 2 })
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if second := s.waitForJob("a"); second.Name == first.Name {
		t.Errorf("both attempts are named %s", first.Name)
	}
	s.wantEvent(v1alpha1.EventJobLost)
}

func TestNameConflictIsReportedAndTheOtherJobKept(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("name-conflict", "").Step("a").Suspend().Obj())
	s.waitForPhase(v1alpha1.PhaseSuspended)
	other := s.plannedJob()
	other.OwnerReferences, other.Labels = nil, nil
	other.Spec.Template.Labels = nil
	if err := cluster.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.waitUntil("the conflict", func(*v1alpha1.SequentialJob) bool {
		status, reason := s.readCondition(v1alpha1.ConditionBlocked)
		return status == metav1.ConditionTrue && reason == v1alpha1.ReasonNameTaken
	})
	s.wantEvent(v1alpha1.EventNameConflict)
	version := other.ResourceVersion
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil || other.Generation != 1 || !other.DeletionTimestamp.IsZero() {
		t.Fatalf("the other Job was changed (version %s to %s): %v", version, other.ResourceVersion, err)
	}
	s.deleteChildJob(other)
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked)
}

// plannedJob returns the Job that sequence.Decide would create next.
func (s *sequenceTest) plannedJob() *batchv1.Job {
	s.t.Helper()
	sj := s.readSequence().DeepCopy()
	sj.Spec.Suspend = false
	decision := sequentialjob.Decide(sequentialjob.Observation{SequentialJob: sj, Answers: sequentialjob.Answers{DryRun: &sequentialjob.DryRunResult{}}})
	if decision.CreateJob == nil {
		s.t.Fatalf("no Job is planned: %+v", decision)
	}
	return decision.CreateJob
}

func TestInvalidLastStepFailsTheRunAtItsStart(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("typo", "").Step("a").Step("b", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	})).Obj())
	s.waitForPhase(v1alpha1.PhaseFailed)
	s.wantCondition(v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse, v1alpha1.ReasonStepInvalid)
	if len(s.listJobs()) != 0 {
		t.Error("a Job was created")
	}
}

func TestRunThatExceedsItsDeadlineIsStopped(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("deadline", "").Step("a").Step("b").Finally("clean").ActiveDeadline(10).Obj())
	s.waitForPod("a")
	s.waitForStep("a", v1alpha1.StepFailed)
	s.succeedStep("clean")
	s.waitForPhase(v1alpha1.PhaseFailed)
	s.wantCondition(v1alpha1.ConditionFailed, metav1.ConditionTrue, v1alpha1.ReasonDeadlineExceeded)
	if phase := s.stepStatus("b").Phase; phase != v1alpha1.StepSkipped {
		t.Errorf("b is %s", phase)
	}
}
