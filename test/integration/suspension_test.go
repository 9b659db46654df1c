package integration

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestSuspendedSequenceStartsNothingUntilItIsResumed(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("suspended", "").Step("a").Suspend().Obj())
	s.untilPhase(v1alpha1.PhaseSuspended)
	s.wantCondition(v1alpha1.ConditionSuspended, metav1.ConditionTrue, v1alpha1.ReasonSuspended)
	s.wantStays("no Job", func() bool { return len(s.jobs()) == 0 })
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeed("a")
	s.untilPhase(v1alpha1.PhaseCompleted)
	s.wantEvent(v1alpha1.EventResumed)
}

func TestSuspendAfterCurrentWaitsForTheRunningStep(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("after", "").Step("a").Step("b").Obj())
	s.podOf("a")
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.until("suspending", func(*v1alpha1.SequentialJob) bool {
		_, reason := s.condition(v1alpha1.ConditionSuspended)
		return reason == v1alpha1.ReasonSuspending
	})
	s.succeed("a")
	s.untilPhase(v1alpha1.PhaseSuspended)
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeed("b")
	s.untilPhase(v1alpha1.PhaseCompleted)
}

func TestSuspendImmediateStopsThePodsAndResumesTheSameJob(t *testing.T) {
	t.Parallel()
	sj := testbuilder.SequentialJob("now", "").Step("a").Obj()
	sj.Spec.SuspendPolicy = v1alpha1.SuspendImmediate
	s := createSequence(t, sj)
	pod := s.podOf("a")
	job := s.jobOf("a")
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.wantGone(pod)
	s.untilPhase(v1alpha1.PhaseSuspended)
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeed("a")
	if uid := s.step("a").JobUID; uid != job.UID {
		t.Errorf("the step continued in Job %s, want %s", uid, job.UID)
	}
}

func TestJobSuspendedByAnotherClientIsNotResumed(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("externally-suspended", "").Step("a").Obj())
	s.podOf("a")
	job := s.jobOf("a")
	before := job.DeepCopy()
	job.Spec.Suspend = new(true)
	if err := cluster.Patch(t.Context(), job, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.wantStays("the suspension", func() bool { return *s.jobOf("a").Spec.Suspend })
}

func TestQueuedJobIsReplacedAfterSuspension(t *testing.T) {
	t.Parallel()
	sj := testbuilder.SequentialJob("queued", "").Step("a").JobLabel("kueue.x-k8s.io/queue-name", "q").Obj()
	sj.Spec.SuspendPolicy = v1alpha1.SuspendImmediate
	s := createSequence(t, sj)
	s.podOf("a")
	first := s.jobOf("a")
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true })
	s.wantGone(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: first.Name, Namespace: first.Namespace}})
	s.untilPhase(v1alpha1.PhaseSuspended)
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.succeed("a")
	if attempt := s.step("a").Attempt; attempt != 2 {
		t.Errorf("attempt %d, want 2", attempt)
	}
}
