package sequentialjob

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestEveryStepGetsADryRunBeforeTheFirstStep(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").Obj()
	decision := Decide(Observation{SequentialJob: sj, Now: time.Unix(1, 0)})
	if decision.Question == nil || len(decision.Question.DryRun) != 3 {
		t.Fatalf("want a dry run of 3 Jobs, got %+v", decision.Question)
	}
	if decision.HasActions() {
		t.Error("it acts before its question is answered")
	}
}

func TestInvalidLastStepFailsTheRunAtItsStart(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.Invalid, Step: "test", Message: "bad quantity"}}
	s.reconcile()
	s.wantCreated()
	s.wantSteps("build: Skipped, Invalid", "test: Skipped, Invalid", "cleanup: Skipped, Invalid")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepInvalid)
	s.wantCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "test": bad quantity`)
	s.wantCondition(v1alpha1.ConditionFailed, `True StepInvalid: step "test": bad quantity`)
	s.wantEvents(v1alpha1.EventSpecRejected, v1alpha1.EventFailed)
}

func TestInvalidSpecFailsTheRunWithoutAWebhook(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepImage("")))
	s.wantCreated()
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonInvalid)
	s.wantCondition(v1alpha1.ConditionSpecAccepted, "False Invalid: spec.containers[0].image: Required value: set an image in the step or in the template's container named step")
}

func TestExceededQuotaDelaysTheRun(t *testing.T) {
	quota := decision.Refusal{Class: decision.QuotaExceeded, Step: "build", Message: "exceeded quota: pods"}
	tests := map[string]func(*testEnv){
		"refused by the dry run":                             func(s *testEnv) { s.dryRunRefusals = []decision.Refusal{quota} },
		"refused when the Job is created":                    func(s *testEnv) { s.createRefusals["build"] = &quota },
		"refused by the dry run and when the Job is created": func(s *testEnv) { s.dryRunRefusals, s.createRefusals["build"] = []decision.Refusal{quota}, &quota },
	}
	for name, refuse := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
			refuse(s)
			d := s.reconcile()
			s.wantCreated()
			s.wantCondition(v1alpha1.ConditionResourcesUnavailable, "True QuotaExceeded: exceeded quota: pods")
			s.wantCondition(v1alpha1.ConditionFailed, "False NotFailed: ")
			s.wantEvents(v1alpha1.EventResourcesUnavailable)
			if d.RequeueAfter != time.Second {
				t.Errorf("want another try in 1 s, got %s", d.RequeueAfter)
			}

			if d := s.reconcileAfter(10 * time.Second); d.RequeueAfter != 10*time.Second {
				t.Errorf("want to back off for 10 s, got %s", d.RequeueAfter)
			}
			if d := s.reconcileAfter(time.Hour); d.RequeueAfter != time.Minute {
				t.Errorf("want another try within a minute, got %s", d.RequeueAfter)
			}
			s.wantEvents()

			s.dryRunRefusals = nil
			delete(s.createRefusals, "build")
			s.reconcileAfter(time.Minute)
			s.wantCreated("build")
			s.reconcileAfter(time.Minute)
			if meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionResourcesUnavailable) {
				t.Error("the condition is still True")
			}
		})
	}
}

func TestQuotaOfALaterStepDoesNotDelayTheFirst(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.QuotaExceeded, Step: "test", Message: "exceeded quota"}}
	s.reconcile()
	s.wantCreated("build")
}

func TestStepWhoseJobIsRefusedFailsAndRunsFinally(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
	s.createRefusals["test"] = &decision.Refusal{Class: decision.Invalid, Step: "test", Message: "denied by a policy"}
	s.succeedStep("build")
	s.reconcile()
	s.wantCreated("build", "cleanup")
	s.wantSteps("build: Succeeded", "test: Failed, JobRejected", "cleanup: Starting")
	if got := s.stepStatus("test").Message; got != "denied by a policy" {
		t.Errorf("want the API server's message, got %q", got)
	}
}

func TestInvalidChangeIsReportedAndTheRunContinues(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.dryRunRefusals = []decision.Refusal{{Class: decision.Invalid, Step: "test", Message: "bad quantity"}}
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].WorkingDir = "x" })
	if d := s.reconcile(); d.HasActions() {
		t.Errorf("the run is interrupted: %+v", d)
	}
	s.wantCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "test": bad quantity`)

	s.dryRunRefusals = nil
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].WorkingDir = "/x" })
	s.reconcile()
	s.wantCondition(v1alpha1.ConditionSpecAccepted, "True Accepted: ")
	s.succeedStep("build")
	s.wantCreated("build", "test")
}

func TestADeadlineEndsTheWaitForQuota(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").ActiveDeadline(60))
	s.createRefusals["test"] = &decision.Refusal{Class: decision.QuotaExceeded, Step: "test", Message: "exceeded quota"}
	s.succeedStep("build")
	s.reconcileAfter(time.Hour)
	s.wantSteps("build: Succeeded", "test: Failed, DeadlineExceeded")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
}
