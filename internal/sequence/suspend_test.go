package sequence

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func suspend(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = true }
func resume(spec *v1alpha1.SequentialJobSpec)  { spec.Suspend = false }

func TestASuspendedSequentialJobStartsNothing(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Suspend())
	s.wantMade()
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	if s.sj.Finalizers != nil {
		t.Error("it carries a finalizer, though nothing runs")
	}
	s.change(resume)
	s.pass()
	s.wantMade("build")
	s.wantPhase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunning)
}

func TestSuspendAfterCurrentLetsTheStepEndAndStartsNoOther(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.change(suspend)
	plan := s.after(time.Minute)
	if plan.Suspend != nil || len(plan.Delete) > 0 {
		t.Error("the running Job is interrupted")
	}
	s.wantCondition(v1alpha1.ConditionSuspended, `False Suspending: step "build" has not ended yet`)

	s.succeed("build")
	s.wantMade("build")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	s.wantCondition(v1alpha1.ConditionSuspended, "True Suspended: spec.suspend holds the run")

	s.change(resume)
	s.pass()
	s.wantMade("build", "test")
}

func TestSuspendImmediateHoldsTheRunningJob(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").SuspendImmediately())
	s.change(suspend)
	if plan := s.after(time.Minute); plan.Suspend == nil {
		t.Fatal("the running Job is not suspended")
	}
	s.wantCondition(v1alpha1.ConditionSuspended, `False Suspending: step "build" has not ended yet`)

	testbuilder.Job(s.job("build")).Suspended(s.now)
	s.pass()
	s.wantSteps("build: Suspended", "test: Pending")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	if s.sj.Finalizers != nil {
		t.Error("it carries a finalizer, though nothing runs")
	}

	s.change(resume)
	if plan := s.pass(); plan.Resume == nil {
		t.Fatal("the Job is not resumed")
	}
	s.wantSteps("build: Running", "test: Pending")
}

func TestAJobThatSomebodyResumedIsSuspendedAgain(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").SuspendImmediately())
	s.change(suspend)
	s.after(time.Minute)
	testbuilder.Job(s.job("build")).Suspended(s.now)
	s.pass()

	s.job("build").Spec.Suspend = new(false)
	s.job("build").Status.Conditions = nil
	testbuilder.Job(s.job("build")).Active(s.now)
	if plan := s.pass(); plan.Suspend == nil {
		t.Error("want it suspended")
	}
	s.wantSteps("build: Running")
}

func TestAQueuesJobIsNeverUnsuspended(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	testbuilder.Job(s.job("build")).Suspended(s.now) // waits for its turn
	if plan := s.after(time.Minute); plan.Resume != nil {
		t.Error("the operator took the queue's decision")
	}
}

func TestAJobThatSomebodyElseSuspendedIsTheirsToResume(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	testbuilder.Job(s.job("build")).Suspended(s.now)
	if plan := s.after(time.Minute); plan.Resume != nil {
		t.Error("the operator resumed it")
	}
}

func TestAQueuesJobIsMadeAgainAfterAnImmediateSuspension(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").SuspendImmediately().JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.change(suspend)
	plan := s.after(time.Minute)
	if plan.Suspend != nil || len(plan.Delete) != 1 {
		t.Fatalf("want the Job deleted, not suspended: %+v", plan)
	}
	s.collect()
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)

	s.change(resume)
	s.pass()
	s.wantMade("build", "build")
	if got := s.step("build").Attempt; got != 2 {
		t.Errorf("want attempt 2, got %d", got)
	}
}

func TestResumingBeforeAStoppedJobIsGoneMakesItAgainAfterwards(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").SuspendImmediately().JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.change(suspend)
	s.after(time.Minute)
	s.change(resume)
	s.pass()
	s.wantMade("build")
	s.collect()
	s.wantMade("build", "build")
}

func TestTheRunsClockStartsAnewOnResumption(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Deadline(60))
	s.change(suspend)
	s.succeed("build")
	s.after(time.Hour)
	s.wantSteps("build: Succeeded", "test: Pending")

	s.change(resume)
	s.pass()
	s.wantMade("build", "test")
	s.after(59 * time.Second)
	s.wantSteps("build: Succeeded", "test: Running")
	s.after(time.Second)
	s.wantSteps("build: Succeeded", "test: Stopping, DeadlineExceeded")
}

func TestFinallyWaitsWhileSuspended(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup"))
	s.change(suspend)
	s.fail("build")
	s.wantMade("build")
	s.change(resume)
	s.pass()
	s.wantMade("build", "cleanup")
}

func TestSuspendingBeforeTheJobIsMadeLeavesTheStepPending(t *testing.T) {
	s := newStory(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
	s.create["build"] = &Refusal{Kind: RefusedQuota, Step: "build", Message: "exceeded quota"}
	s.pass()
	s.change(suspend)
	s.pass()
	s.wantSteps("build: Pending")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)

	delete(s.create, "build")
	s.change(resume)
	s.pass()
	s.wantMade("build")
}
