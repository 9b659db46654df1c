package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestPendingStepsFollowAChangedSpec(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("changed", "").Step("a").Step("b").Obj())
	s.podOf("a")
	running := s.jobOf("a")
	s.patch(func(sj *v1alpha1.SequentialJob) {
		sj.Spec.Containers[1].Image = "registry.example/b:2"
		sj.Spec.Containers = append(sj.Spec.Containers, testbuilder.Step("c"))
	})
	s.wantEvent(v1alpha1.EventSpecChanged)
	s.succeed("a")
	if image := s.jobOf("b").Spec.Template.Spec.Containers[0].Image; image != "registry.example/b:2" {
		t.Errorf("b runs %s", image)
	}
	s.succeed("b")
	s.succeed("c")
	s.untilPhase(v1alpha1.PhaseCompleted)
	if uid := s.step("a").JobUID; uid != running.UID {
		t.Error("the running step was interrupted")
	}
	if first, second := s.step("a").Generation, s.step("b").Generation; first != 1 || second != 2 {
		t.Errorf("generations %d and %d, want 1 and 2", first, second)
	}
}

func TestChangingALaterStepDoesNotStopTheRunningStep(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("edited", "").Step("a").Step("b").Obj())
	pod := s.podOf("a")
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[1].Image = "registry.example/b:2" })
	s.until("the new generation", func(sj *v1alpha1.SequentialJob) bool { return sj.Status.ObservedGeneration == 2 })
	if now := s.podOf("a"); now.UID != pod.UID {
		t.Error("the running step's Pod was replaced")
	}
	s.succeed("a")
}

func TestChangedStartedStepIsReportedAndTheRunContinues(t *testing.T) {
	t.Parallel()
	s := createSequenceIn(t, namespaceWithoutWebhook(t), testbuilder.SequentialJob("started", "").Step("a").Step("b").Obj())
	s.podOf("a")
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[0].Image = "registry.example/a:2" })
	s.until("the rejection", func(*v1alpha1.SequentialJob) bool {
		status, reason := s.condition(v1alpha1.ConditionSpecAccepted)
		return status == metav1.ConditionFalse && reason == v1alpha1.ReasonStartedStepChanged
	})
	s.wantEvent(v1alpha1.EventSpecRejected)
	s.succeed("a")
	s.succeed("b")
	s.untilPhase(v1alpha1.PhaseCompleted)
	if jobs := s.jobs(); len(jobs) != 2 {
		t.Errorf("%d Jobs, want 2", len(jobs))
	}
}

func TestRemovingStartedStepsCountsNoStepTwice(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("shortened", "").Step("a").Step("b").Step("c").Obj())
	s.succeed("a")
	s.podOf("b")
	s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers = sj.Spec.Containers[:2] })
	s.succeed("b")
	s.untilPhase(v1alpha1.PhaseCompleted)
	if s.sj.Status.State.Succeeded != 2 || s.sj.Status.Progress.Display != "2/2" {
		t.Errorf("%s", describe(s.sj))
	}
}
