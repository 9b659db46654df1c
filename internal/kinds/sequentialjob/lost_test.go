package sequentialjob

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestLostJobFailsItsStep(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
	s.reconcileAfter(time.Minute)
	s.loseJob("build")
	s.wantCreated("build", "cleanup")
	s.wantSteps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed", "cleanup: Starting")
}

func TestLostJobIsReplacedWithOnLostJobRerun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").RerunLostJobs())
	s.reconcileAfter(time.Minute)
	first := s.newestJob("build").Name
	s.loseJob("build")
	s.wantCreated("build", "build")
	if got := s.stepStatus("build"); got.Attempt != 2 || s.newestJob("build").Name == first {
		t.Errorf("want a second attempt under another name, got %+v", got)
	}
	s.succeedStep("build")
	s.succeedStep("test")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestJobWithAnotherUIDIsNotTheStepsJob(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.reconcileAfter(time.Minute)
	testbuilder.Job(s.newestJob("build")).Created("another", s.now).Complete(s.now)
	s.reconcile()
	s.wantSteps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed")
}

func TestLostJobOfARemovedStepIsNotReplaced(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").RerunLostJobs())
	s.reconcileAfter(time.Minute)
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[1:] }) // without a webhook
	s.loseJob("build")
	s.wantCreated("build")
	s.wantSteps("build: Failed, JobRejected", "test: Skipped, PreviousStepFailed")
}

func TestStepRemovedBeforeItsJobIsCreatedFails(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Obj())
	s.createRefusals["build"] = &decision.Refusal{Class: decision.QuotaExceeded, Step: "build", Message: "exceeded quota"}
	s.reconcile()
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[1:] }) // without a webhook
	s.reconcile()
	s.wantCreated()
	s.wantSteps("build: Failed, JobRejected", "test: Skipped, PreviousStepFailed")
}

func TestLostJobOfAToleratedStepStartsTheNextStep(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
	s.reconcileAfter(time.Minute)
	s.loseJob("lint")
	s.wantCreated("lint", "build")
}
