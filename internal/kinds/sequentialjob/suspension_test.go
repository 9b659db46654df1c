package sequentialjob

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func setSuspendTrue(spec *v1alpha1.SequentialJobSpec)  { spec.Suspend = true }
func setSuspendFalse(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = false }

func TestSuspendedSequentialJobStartsNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Suspend())
	s.wantCreated()
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	if s.sj.Finalizers != nil {
		t.Error("it carries a finalizer, although nothing runs")
	}
	s.changeSpec(setSuspendFalse)
	s.reconcile()
	s.wantCreated("build")
	s.wantPhase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting)
}

func TestSuspendAfterCurrentWaitsForTheStepToEnd(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.changeSpec(setSuspendTrue)
	decision := s.reconcileAfter(time.Minute)
	if decision.SuspendJob != nil || len(decision.DeleteJobs) > 0 {
		t.Error("the running Job is interrupted")
	}
	s.wantCondition(v1alpha1.ConditionSuspended, `False Suspending: waiting for step "build" to end`)

	s.succeedStep("build")
	s.wantCreated("build")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	s.wantCondition(v1alpha1.ConditionSuspended, "True Suspended: spec.suspend is true")

	s.changeSpec(setSuspendFalse)
	s.reconcile()
	s.wantCreated("build", "test")
}

func TestSuspendImmediateSuspendsTheRunningJob(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").SuspendImmediately())
	s.changeSpec(setSuspendTrue)
	if decision := s.reconcileAfter(time.Minute); decision.SuspendJob == nil {
		t.Fatal("the running Job is not suspended")
	}
	s.wantCondition(v1alpha1.ConditionSuspended, `False Suspending: waiting for step "build" to end`)

	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	s.reconcile()
	s.wantSteps("build: Suspended", "test: Pending")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	if s.sj.Finalizers != nil {
		t.Error("it carries a finalizer, although nothing runs")
	}

	s.changeSpec(setSuspendFalse)
	if decision := s.reconcile(); decision.ResumeJob == nil {
		t.Fatal("the Job is not resumed")
	}
	s.wantSteps("build: Starting", "test: Pending")
}

func TestJobResumedByAnotherClientIsSuspendedAgain(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").SuspendImmediately())
	s.changeSpec(setSuspendTrue)
	s.reconcileAfter(time.Minute)
	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	s.reconcile()

	s.newestJob("build").Spec.Suspend = new(false)
	s.newestJob("build").Status.Conditions = nil
	testbuilder.Job(s.newestJob("build")).Active(s.now)
	if decision := s.reconcile(); decision.SuspendJob == nil {
		t.Error("want it suspended")
	}
	s.wantSteps("build: Starting")
}

func TestQueuedJobIsNotResumed(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	testbuilder.Job(s.newestJob("build")).Suspended(s.now) // waits for admission
	if decision := s.reconcileAfter(time.Minute); decision.ResumeJob != nil {
		t.Error("the operator resumed a queued Job")
	}
}

// admitJob resumes the step's Job and starts a Pod, as a queue and the Job controller do.
func (s *testEnv) admitJob(step string) {
	s.t.Helper()
	job := s.newestJob(step)
	job.Spec.Suspend, job.Status.Conditions = new(false), nil
	testbuilder.Job(job).Active(s.now)
	s.startPod(step)
	s.reconcile()
	s.reconcileAfter(startReportDelay)
}

// preemptJob suspends the step's Job as a queue does, which deletes its Pod.
func (s *testEnv) preemptJob(step string) {
	s.t.Helper()
	testbuilder.Job(s.newestJob(step)).Suspended(s.now)
	s.newestJob(step).Status.StartTime, s.unfinishedPods = nil, nil
	s.reconcileAfter(startReportDelay)
}

func TestPreemptedStepContinuesItsAttempt(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.preemptJob("build") // before it was admitted
	s.wantPhase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting)
	for i := range 3 {
		s.wantSteps("build: Queued, Queued", "test: Pending")
		if i > 0 {
			s.wantPhase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunning)
		}
		s.now = s.now.Add(time.Hour)
		s.admitJob("build")
		s.wantSteps("build: Running", "test: Pending")
		s.preemptJob("build")
	}
	s.admitJob("build")
	s.succeedStep("build")
	s.wantSteps("build: Succeeded", "test: Starting")
	s.wantCreated("build", "test")
	if step := s.stepStatus("build"); step.Attempt != 1 || step.FailedPods != 0 || step.FailedAttempts != 0 {
		t.Errorf("attempt %d, %d failed Pods, %d failed attempts", step.Attempt, step.FailedPods, step.FailedAttempts)
	}
}

func TestResumedStepIsNotRunningBecauseThePodBeforeStillStops(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.admitJob("build")
	s.wantSteps("build: Running")
	stopping := s.unfinishedPods
	stopping[0].DeletionTimestamp = new(metav1.NewTime(s.now.Add(time.Minute)))
	s.preemptJob("build")
	s.unfinishedPods = stopping
	s.newestJob("build").Spec.Suspend, s.newestJob("build").Status.Conditions = new(false), nil
	s.reconcileAfter(startReportDelay)
	s.wantSteps("build: Starting")
	s.admitJob("build")
	s.wantSteps("build: Running")
}

func TestTimeLimitsOfAStepDoNotCountInAQueue(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepStartDeadline(30)).JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	for range 2 { // also after a preemption
		s.preemptJob("build")
		s.reconcileAfter(time.Hour)
		s.wantSteps("build: Queued, Queued")
		s.admitJob("build")
		s.wantSteps("build: Running")
		if got := s.stepStatus("build").StartTime; !got.Time.Equal(s.now.Add(-startReportDelay)) {
			t.Errorf("the step started at %s, want the time at which it was admitted", got)
		}
	}
}

func TestDeadlineOfTheRunCountsInAQueue(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").ActiveDeadline(60).JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.preemptJob("build")
	s.wantSteps("build: Queued, Queued")
	if decision := s.reconcileAfter(time.Minute); len(decision.DeleteJobs) != 1 {
		t.Error("the Job stays in the queue")
	}
	s.removeDeletedJobs()
	s.wantSteps("build: Failed, DeadlineExceeded")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
}

func TestJobSuspendedByAnotherClientIsNotResumed(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	if decision := s.reconcileAfter(time.Minute); decision.ResumeJob != nil {
		t.Error("the operator resumed it")
	}
}

func TestQueuedJobIsReplacedAfterImmediateSuspension(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").SuspendImmediately().JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.changeSpec(setSuspendTrue)
	decision := s.reconcileAfter(time.Minute)
	if decision.SuspendJob != nil || len(decision.DeleteJobs) != 1 {
		t.Fatalf("want the Job deleted, not suspended: %+v", decision)
	}
	s.wantSteps("build: Suspending, Interrupted")
	s.removeDeletedJobs()
	s.wantSteps("build: Interrupted, Interrupted")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)

	s.changeSpec(setSuspendFalse)
	s.reconcile()
	s.wantCreated("build", "build")
	if got := s.stepStatus("build").Attempt; got != 2 {
		t.Errorf("want attempt 2, got %d", got)
	}
}

func TestRunDeadlineRestartsOnResumption(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").ActiveDeadline(60))
	s.changeSpec(setSuspendTrue)
	s.succeedStep("build")
	s.reconcileAfter(time.Hour)
	s.wantSteps("build: Succeeded", "test: Pending")

	s.changeSpec(setSuspendFalse)
	s.reconcile()
	s.wantCreated("build", "test")
	s.reconcileAfter(59 * time.Second)
	s.wantSteps("build: Succeeded", "test: Starting")
	s.reconcileAfter(time.Second)
	s.wantSteps("build: Succeeded", "test: Stopping, DeadlineExceeded")
}

func TestFinallyWaitsWhileSuspended(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup"))
	s.changeSpec(setSuspendTrue)
	s.failStep("build")
	s.wantCreated("build")
	s.changeSpec(setSuspendFalse)
	s.reconcile()
	s.wantCreated("build", "cleanup")
}

func TestSuspensionBeforeTheJobIsCreatedLeavesTheStepPending(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
	s.createRefusals["build"] = &decision.Refusal{Class: decision.QuotaExceeded, Step: "build", Message: "exceeded quota"}
	s.reconcile()
	s.changeSpec(setSuspendTrue)
	s.reconcile()
	s.wantSteps("build: Pending")
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)

	delete(s.createRefusals, "build")
	s.changeSpec(setSuspendFalse)
	s.reconcile()
	s.wantCreated("build")
	if got := s.stepStatus("build").Attempt; got != 1 {
		t.Errorf("want attempt 1, got %d", got)
	}
}

func TestLostStepWaitsForResumption(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").RerunLostJobs())
	s.changeSpec(setSuspendTrue)
	s.loseJob("build")
	s.wantSteps("build: Lost, JobLost")
	s.changeSpec(setSuspendFalse)
	s.reconcile()
	s.wantCreated("build", "build")
}
