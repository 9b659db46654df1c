package integration

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func (s *sequenceTest) deleteChildJob(job *batchv1.Job) {
	s.t.Helper()
	if err := cluster.Delete(s.t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		s.t.Fatal(err)
	}
}

func TestLostJobFailsTheStep(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("lost", "").Step("a").Step("b").Obj())
	s.waitForPod("a")
	s.deleteChildJob(s.waitForJob("a"))
	s.waitForPhase(v1alpha1.PhaseFailed)
	if reason := s.stepStatus("a").Reason; reason != v1alpha1.ReasonJobLost {
		t.Errorf("reason %s", reason)
	}
	if jobs := s.listJobs(); len(jobs) != 0 {
		t.Errorf("the step ran again: %d Jobs", len(jobs))
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

func TestDeletingTheJobOfAFinishedStepDoesNotRepeatIt(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("kept", "").Step("a").Step("b").Obj())
	s.succeedStep("a")
	s.deleteChildJob(s.waitForJob("a"))
	s.succeedStep("b")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if jobs := s.listJobs(); len(jobs) != 1 || jobs[0].Labels[v1alpha1.LabelStep] != "b" {
		t.Errorf("%d Jobs", len(jobs))
	}
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

// A lost status write must not lead to an endless AlreadyExists error.
func TestJobOfALostStatusWriteIsAdopted(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("adopted", "").Step("a").Step("b").Suspend().Obj())
	s.waitForPhase(v1alpha1.PhaseSuspended)
	job := s.plannedJob()
	if err := cluster.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeedStep("a")
	if uid := s.stepStatus("a").JobUID; uid != job.UID {
		t.Errorf("step a has Job %s, want %s", uid, job.UID)
	}
	s.succeedStep("b")
	s.waitForPhase(v1alpha1.PhaseCompleted)
}

func TestExceededQuotaDelaysTheRun(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "no-jobs", Namespace: ns}}
	quota.Spec.Hard = corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}
	if err := cluster.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the quota to take effect", func() bool {
		return cluster.Get(t.Context(), client.ObjectKeyFromObject(quota), quota) == nil && len(quota.Status.Hard) > 0
	})
	s := createSequenceIn(t, ns, testbuilder.SequentialJob("quota", "").Step("a").Obj())
	s.waitUntil("the quota to be reported", func(*v1alpha1.SequentialJob) bool {
		status, _ := s.readCondition(v1alpha1.ConditionResourcesUnavailable)
		return status == metav1.ConditionTrue
	})
	s.wantCondition(v1alpha1.ConditionFailed, metav1.ConditionFalse, v1alpha1.ReasonNotFailed)
	if err := cluster.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantCondition(v1alpha1.ConditionResourcesUnavailable, metav1.ConditionFalse, v1alpha1.ReasonAvailable)
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

func TestStartDeadlineEndsAStepWhoseImageCannotBePulled(t *testing.T) {
	t.Parallel()
	sj := testbuilder.SequentialJob("image-pull", "").Step("a", testbuilder.StepStartDeadline(10)).Finally("clean").Obj()
	sj.Spec.Template = &v1alpha1.PodTemplate{}
	sj.Spec.Template.Annotations = map[string]string{simStuck: "true"}
	s := createSequence(t, sj)
	step := s.waitForStep("a", v1alpha1.StepFailed)
	if step.Reason != v1alpha1.ReasonStartDeadlineExceeded || !strings.Contains(step.Message, "ImagePullBackOff") {
		t.Errorf("%s: %s", step.Reason, step.Message)
	}
	if s.waitForJob("clean") == nil {
		t.Error("finally did not run")
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
