package sequence

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func suspend(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = true }
func resume(spec *v1alpha1.SequentialJobSpec)  { spec.Suspend = false }

func TestASuspendedSequentialJobStartsNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Suspend())
	s.wantMade()
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	if s.sj.Finalizers != nil {
		t.Error("it carries a finalizer, though nothing runs")
	}
	s.change(resume)
	s.reconcile()
	s.wantMade("build")
	s.wantPhase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunning)
}

func TestSuspendAfterCurrentLetsTheStepEndAndStartsNoOther(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.change(suspend)
	decision := s.after(time.Minute)
	if decision.SuspendJob != nil || len(decision.DeleteJobs) > 0 {
		t.Error("the running Job is interrupted")
	}
	s.wantCondition(v1alpha1.ConditionSuspended, `False Suspending: waiting for step "build" to end`)

	s.succeed("build")
	s.wantMade("build")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	s.wantCondition(v1alpha1.ConditionSuspended, "True Suspended: spec.suspend is true")

	s.change(resume)
	s.reconcile()
	s.wantMade("build", "test")
}

func TestSuspendImmediateHoldsTheRunningJob(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").SuspendImmediately())
	s.change(suspend)
	if decision := s.after(time.Minute); decision.SuspendJob == nil {
		t.Fatal("the running Job is not suspended")
	}
	s.wantCondition(v1alpha1.ConditionSuspended, `False Suspending: waiting for step "build" to end`)

	testbuilder.Job(s.job("build")).Suspended(s.now)
	s.reconcile()
	s.wantSteps("build: Suspended", "test: Pending")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	if s.sj.Finalizers != nil {
		t.Error("it carries a finalizer, though nothing runs")
	}

	s.change(resume)
	if decision := s.reconcile(); decision.ResumeJob == nil {
		t.Fatal("the Job is not resumed")
	}
	s.wantSteps("build: Running", "test: Pending")
}

func TestAJobThatSomebodyResumedIsSuspendedAgain(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").SuspendImmediately())
	s.change(suspend)
	s.after(time.Minute)
	testbuilder.Job(s.job("build")).Suspended(s.now)
	s.reconcile()

	s.job("build").Spec.Suspend = new(false)
	s.job("build").Status.Conditions = nil
	testbuilder.Job(s.job("build")).Active(s.now)
	if decision := s.reconcile(); decision.SuspendJob == nil {
		t.Error("want it suspended")
	}
	s.wantSteps("build: Running")
}

func TestAQueuesJobIsNeverUnsuspended(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	testbuilder.Job(s.job("build")).Suspended(s.now) // waits for its turn
	if decision := s.after(time.Minute); decision.ResumeJob != nil {
		t.Error("the operator took the queue's decision")
	}
}

func TestAJobThatSomebodyElseSuspendedIsTheirsToResume(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	testbuilder.Job(s.job("build")).Suspended(s.now)
	if decision := s.after(time.Minute); decision.ResumeJob != nil {
		t.Error("the operator resumed it")
	}
}

func TestAQueuesJobIsMadeAgainAfterAnImmediateSuspension(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").SuspendImmediately().JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.change(suspend)
	decision := s.after(time.Minute)
	if decision.SuspendJob != nil || len(decision.DeleteJobs) != 1 {
		t.Fatalf("want the Job deleted, not suspended: %+v", decision)
	}
	s.wantSteps("build: Suspending, Interrupted")
	s.collect()
	s.wantSteps("build: Interrupted, Interrupted")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)

	s.change(resume)
	s.reconcile()
	s.wantMade("build", "build")
	if got := s.step("build").Attempt; got != 2 {
		t.Errorf("want attempt 2, got %d", got)
	}
}

func TestResumingBeforeAStoppedJobIsGoneMakesItAgainAfterwards(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").SuspendImmediately().JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.change(suspend)
	s.after(time.Minute)
	s.change(resume)
	s.reconcile()
	s.wantMade("build")
	s.collect()
	s.wantMade("build", "build")
}

func TestTheRunsClockStartsAnewOnResumption(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Deadline(60))
	s.change(suspend)
	s.succeed("build")
	s.after(time.Hour)
	s.wantSteps("build: Succeeded", "test: Pending")

	s.change(resume)
	s.reconcile()
	s.wantMade("build", "test")
	s.after(59 * time.Second)
	s.wantSteps("build: Succeeded", "test: Running")
	s.after(time.Second)
	s.wantSteps("build: Succeeded", "test: Stopping, DeadlineExceeded")
}

func TestFinallyWaitsWhileSuspended(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup"))
	s.change(suspend)
	s.fail("build")
	s.wantMade("build")
	s.change(resume)
	s.reconcile()
	s.wantMade("build", "cleanup")
}

func TestSuspendingBeforeTheJobIsMadeLeavesTheStepPending(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
	s.create["build"] = &core.Refusal{Class: apierror.QuotaExceeded, Step: "build", Message: "exceeded quota"}
	s.reconcile()
	s.change(suspend)
	s.reconcile()
	s.wantSteps("build: Pending")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)

	delete(s.create, "build")
	s.change(resume)
	s.reconcile()
	s.wantMade("build")
	if got := s.step("build").Attempt; got != 1 {
		t.Errorf("want attempt 1, got %d", got)
	}
}

func TestLostStepWaitsForResumption(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").RerunLostJobs())
	s.change(suspend)
	s.lose("build")
	s.wantSteps("build: Lost, JobLost")
	s.change(resume)
	s.reconcile()
	s.wantMade("build", "build")
}
