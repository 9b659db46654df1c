package integration

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestSuspendedSequenceStartsNothingUntilItIsResumed(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("suspended", "").Step("a").Suspend().Obj())
	s.waitForPhase(v1alpha1.PhaseSuspended)
	s.wantCondition(v1alpha1.ConditionSuspended, metav1.ConditionTrue, v1alpha1.ReasonSuspended)
	s.wantUnchanged("no Job", func() bool { return len(s.listJobs()) == 0 })
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEvent(v1alpha1.EventResumed)
}

func TestSuspendAfterCurrentWaitsForTheRunningStep(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("after", "").Step("a").Step("b").Obj())
	s.waitForPod("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.waitUntil("suspending", func(*v1alpha1.SequentialJob) bool {
		_, reason := s.readCondition(v1alpha1.ConditionSuspended)
		return reason == v1alpha1.ReasonSuspending
	})
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseSuspended)
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeedStep("b")
	s.waitForPhase(v1alpha1.PhaseCompleted)
}

func TestSuspendImmediateStopsThePodsAndResumesTheSameJob(t *testing.T) {
	t.Parallel()
	sj := testbuilder.SequentialJob("now", "").Step("a").Obj()
	sj.Spec.SuspendPolicy = v1alpha1.SuspendImmediate
	s := createSequence(t, sj)
	pod := s.waitForPod("a")
	job := s.waitForJob("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.waitUntilDeleted(pod)
	s.waitForPhase(v1alpha1.PhaseSuspended)
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeedStep("a")
	if uid := s.stepStatus("a").JobUID; uid != job.UID {
		t.Errorf("the step continued in Job %s, want %s", uid, job.UID)
	}
}

func TestJobSuspendedByAnotherClientIsNotResumed(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("externally-suspended", "").Step("a").Obj())
	s.waitForPod("a")
	job := s.waitForJob("a")
	before := job.DeepCopy()
	job.Spec.Suspend = new(true)
	if err := cluster.Patch(t.Context(), job, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.wantUnchanged("the suspension", func() bool { return *s.waitForJob("a").Spec.Suspend })
}

func TestQueuedJobIsReplacedAfterSuspension(t *testing.T) {
	t.Parallel()
	sj := testbuilder.SequentialJob("queued", "").Step("a").JobLabel("kueue.x-k8s.io/queue-name", "q").Obj()
	sj.Spec.SuspendPolicy = v1alpha1.SuspendImmediate
	s := createSequence(t, sj)
	s.waitForPod("a")
	first := s.waitForJob("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.waitUntilDeleted(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: first.Name, Namespace: first.Namespace}})
	s.waitForPhase(v1alpha1.PhaseSuspended)
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeedStep("a")
	if attempt := s.stepStatus("a").Attempt; attempt != 2 {
		t.Errorf("attempt %d, want 2", attempt)
	}
}
