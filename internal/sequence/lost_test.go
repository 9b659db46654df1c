package sequence

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestAJobThatVanishedFailsItsStep(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
	s.after(time.Minute)
	s.lose("build")
	s.wantMade("build", "cleanup")
	s.wantSteps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed", "cleanup: Running")
}

func TestAJobThatVanishedIsMadeAgainIfTheUserWantsThat(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").RerunLostJobs())
	s.after(time.Minute)
	first := s.job("build").Name
	s.lose("build")
	s.wantMade("build", "build")
	if got := s.step("build"); got.Attempt != 2 || s.job("build").Name == first {
		t.Errorf("want a second attempt under another name, got %+v", got)
	}
	s.succeed("build")
	s.succeed("test")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestAJobThatVanishedBeforeItWasEverSeenIsLostToo(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.lose("build") // this process made it, so it was there
	s.wantMade("build")
	s.wantSteps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed")
}

func TestAStepWhoseJobWasNeverMadeIsNotLost(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.jobs, s.made = nil, nil // recorded, then crashed before it made the Job
	s.restart()
	s.reconcile()
	s.wantMade("build")
	s.wantSteps("build: Running")
}

func TestAJobMadeAgainByAStrangerUnderOurNameIsNotOurs(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.after(time.Minute)
	testbuilder.Job(s.job("build")).Created("another", s.now).Complete(s.now)
	s.reconcile()
	s.wantSteps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed")
}

func TestALostJobOfAStepThatWasRemovedIsNotMadeAgain(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").RerunLostJobs())
	s.after(time.Minute)
	s.change(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[1:] }) // without a webhook
	s.lose("build")
	s.wantMade("build")
	s.wantSteps("build: Failed, JobRejected", "test: Skipped, PreviousStepFailed")
}

func TestAStepThatWasRemovedBeforeItsJobWasMadeIsNotMade(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Obj())
	s.create["build"] = &core.Refusal{Class: apierror.QuotaExceeded, Step: "build", Message: "exceeded quota"}
	s.reconcile()
	s.change(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[1:] }) // without a webhook
	s.reconcile()
	s.wantMade()
	s.wantSteps("build: Failed, JobRejected", "test: Skipped, PreviousStepFailed")
}

func TestAJobThatAStrangerDeletesIsLostOnlyWhenItIsGone(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	testbuilder.Job(s.job("build")).Deleted(s.now)
	if decision := s.after(time.Minute); decision.HasActions() {
		t.Errorf("want nothing done, got %+v", decision)
	}
	s.wantSteps("build: Running", "test: Pending")
	s.collect()
	s.wantSteps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed")
}

func TestALostJobOfAToleratedStepLetsTheRunGoOn(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
	s.after(time.Minute)
	s.lose("lint")
	s.wantMade("lint", "build")
}
