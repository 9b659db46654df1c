package sequence

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestEveryStepIsTriedBeforeTheFirst(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").Obj()
	plan := Decide(Input{SequentialJob: sj, Now: time.Unix(1, 0)})
	if plan.Ask == nil || len(plan.Ask.DryRun) != 3 {
		t.Fatalf("want a dry run of 3 Jobs, got %+v", plan.Ask)
	}
	if plan.Acts() {
		t.Error("it acts before it knows")
	}
}

func TestAMistakeInTheLastStepFailsTheRunAtOnce(t *testing.T) {
	s := newStory(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").Obj())
	s.dryRun = []Refusal{{Kind: RefusedInvalid, Step: "test", Message: "bad quantity"}}
	s.pass()
	s.wantMade()
	s.wantSteps("build: Skipped, Invalid", "test: Skipped, Invalid", "cleanup: Skipped, Invalid")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepInvalid)
	s.wantCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "test": bad quantity`)
	s.wantCondition(v1alpha1.ConditionFailed, `True StepInvalid: step "test": bad quantity`)
	s.wantEvents(v1alpha1.EventSpecRejected, v1alpha1.EventFailed)
}

func TestWithoutAWebhookTheSameMistakesFailTheRun(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.Image("")))
	s.wantMade()
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonInvalid)
	s.wantCondition(v1alpha1.ConditionSpecAccepted, "False Invalid: spec.containers[0].image: Required value: neither the step nor the template's container named step has an image")
}

func TestOutOfQuotaIsWaitingNotFailure(t *testing.T) {
	quota := Refusal{Kind: RefusedQuota, Step: "build", Message: "exceeded quota: pods"}
	tests := map[string]func(*story){
		"seen by the dry run":      func(s *story) { s.dryRun = []Refusal{quota} },
		"seen when a Job is made":  func(s *story) { s.create["build"] = &quota },
		"seen by both, one by one": func(s *story) { s.dryRun, s.create["build"] = []Refusal{quota}, &quota },
	}
	for name, refuse := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
			refuse(s)
			plan := s.pass()
			s.wantMade()
			s.wantCondition(v1alpha1.ConditionResourcesUnavailable, "True QuotaExceeded: exceeded quota: pods")
			s.wantCondition(v1alpha1.ConditionFailed, "False NotFailed: ")
			s.wantEvents(v1alpha1.EventResourcesUnavailable)
			if plan.RequeueAfter != time.Second {
				t.Errorf("want another try in 1 s, got %s", plan.RequeueAfter)
			}

			if plan := s.after(10 * time.Second); plan.RequeueAfter != 10*time.Second {
				t.Errorf("want to back off for 10 s, got %s", plan.RequeueAfter)
			}
			if plan := s.after(time.Hour); plan.RequeueAfter != time.Minute {
				t.Errorf("want another try within a minute, got %s", plan.RequeueAfter)
			}
			s.wantEvents()

			s.dryRun = nil
			delete(s.create, "build")
			s.after(time.Minute)
			s.wantMade("build")
			s.after(time.Minute)
			if meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionResourcesUnavailable) {
				t.Error("the condition is still there")
			}
		})
	}
}

func TestAQuotaThatBarsALaterStepDoesNotBarTheFirst(t *testing.T) {
	s := newStory(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Obj())
	s.dryRun = []Refusal{{Kind: RefusedQuota, Step: "test", Message: "exceeded quota"}}
	s.pass()
	s.wantMade("build")
}

func TestAStepWhoseJobIsRefusedFailsAndFinallyRuns(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
	s.create["test"] = &Refusal{Kind: RefusedInvalid, Step: "test", Message: "denied by a policy"}
	s.succeed("build")
	s.pass()
	s.wantMade("build", "cleanup")
	s.wantSteps("build: Succeeded", "test: Failed, JobRejected", "cleanup: Starting")
	if got := s.step("test").Message; got != "denied by a policy" {
		t.Errorf("want the API server's words, got %q", got)
	}
}

func TestAChangeThatWouldBeRefusedIsToldAtOnceAndTheRunGoesOn(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.dryRun = []Refusal{{Kind: RefusedInvalid, Step: "test", Message: "bad quantity"}}
	s.change(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].WorkingDir = "x" })
	if plan := s.pass(); plan.Acts() {
		t.Errorf("the run is interrupted: %+v", plan)
	}
	s.wantCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "test": bad quantity`)

	s.dryRun = nil
	s.change(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].WorkingDir = "/x" })
	s.pass()
	s.wantCondition(v1alpha1.ConditionSpecAccepted, "True Accepted: ")
	s.succeed("build")
	s.wantMade("build", "test")
}

func TestADeadlineEndsTheWaitForQuota(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Deadline(60))
	s.create["test"] = &Refusal{Kind: RefusedQuota, Step: "test", Message: "exceeded quota"}
	s.succeed("build")
	s.after(time.Hour)
	s.wantSteps("build: Succeeded", "test: Failed, DeadlineExceeded")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
}
