package sequentialjob

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// hasFinalizer checks whether the SequentialJob has the finalizer, which it has while something runs.
func hasFinalizer(want bool) func(*testEnv) {
	return func(s *testEnv) { assert.Equal(s.t, "it has the finalizer", want, len(s.sj.Finalizers) > 0) }
}

func jobIsSuspended(s *testEnv) {
	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	s.reconcile()
}

func jobIsResumed(s *testEnv) {
	s.newestJob("build").Spec.Suspend, s.newestJob("build").Status.Conditions = new(false), nil
	testbuilder.Job(s.newestJob("build")).Active(s.now)
}

func TestASuspendedRunStartsNothing(t *testing.T) {
	isSuspended := phase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	isWaiting := hasCondition(v1alpha1.ConditionSuspended, `False Suspending: waiting for step "build" to end`)
	runScenarios(t, map[string]scenario{
		"from its creation": {sequence("build").Suspend(), story{
			created(), isSuspended, hasFinalizer(false), resumeRun, created("build"), phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting),
		}},
		"after the step that runs": {sequence("build", "test"), story{
			suspendRun, isWaiting, wait(time.Minute), jobHasSuspend(false), steps("build: Starting", "test: Pending"),
			succeed("build"), created("build"), isSuspended,
			hasCondition(v1alpha1.ConditionSuspended, "True Suspended: spec.suspend is true"),
			resumeRun, created("build", "test"),
		}},
		"after a failure": {sequence("build").Finally("cleanup"), story{
			suspendRun, fail("build"), created("build"), resumeRun, created("build", "cleanup"),
		}},
		"before the Job of its step exists, which is then the first attempt": {sequence("lint", "build"), story{
			refuse("build", decision.QuotaExceeded), succeed("lint"), suspendRun, steps("lint: Succeeded", "build: Pending"), isSuspended,
			accept("build"), created("lint"), resumeRun, created("lint", "build"),
			func(s *testEnv) { assert.Equal(s.t, "attempt", int32(1), s.stepStatus("build").Attempt) },
		}},
		"and its deadline starts again when it is resumed": {sequence("build", "test").ActiveDeadline(60), story{
			suspendRun, succeed("build"), wait(time.Hour), steps("build: Succeeded", "test: Pending"),
			resumeRun, wait(59 * time.Second), steps("build: Succeeded", "test: Starting"),
			wait(time.Second), steps("build: Succeeded", "test: Stopping, DeadlineExceeded"),
		}},
		"with Immediate, its Job is suspended, and resumed with it": {sequence("build", "test").SuspendImmediately(), story{
			suspendRun, isWaiting, jobHasSuspend(true), jobIsSuspended,
			steps("build: Suspended", "test: Pending"), isSuspended, hasFinalizer(false),
			resumeRun, jobHasSuspend(false), steps("build: Starting", "test: Pending"),
		}},
		"with Immediate, a Job that another client resumes is suspended again": {sequence("build").SuspendImmediately(), story{
			suspendRun, jobIsSuspended, jobIsResumed, wait(0), jobHasSuspend(true), steps("build: Starting"),
		}},
		"with Immediate, the Job in a queue is replaced": {
			sequence("build").SuspendImmediately().JobLabel(queueLabel, "batch"), story{
				suspendRun, jobHasSuspend(false), steps("build: Suspending, Interrupted"),
				removeJobs, steps("build: Interrupted, Interrupted"), isSuspended, resumeRun, created("build", "build"),
			},
		},
	})
}

// jobHasSuspend checks spec.suspend of the Job of build.
func jobHasSuspend(want bool) func(*testEnv) {
	return func(s *testEnv) {
		assert.Equal(s.t, "the Job is suspended", want, isSuspended(s.newestJob("build")))
	}
}

func TestAJobThatOthersSuspendIsNotResumed(t *testing.T) {
	queued := func() *testbuilder.SequentialJobBuilder { return sequence("build").JobLabel(queueLabel, "batch") }
	runScenarios(t, map[string]scenario{
		"a queue":        {queued(), story{jobIsSuspended, wait(time.Minute), jobHasSuspend(true)}},
		"another client": {sequence("build"), story{jobIsSuspended, wait(time.Minute), jobHasSuspend(true), hasFinalizer(true)}},
		"a queue, until the deadline of the run": {queued().ActiveDeadline(60), story{
			jobIsSuspended, wait(time.Second), steps("build: Queued, Queued"), wait(time.Minute), removeJobs,
			steps("build: Failed, DeadlineExceeded"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded),
		}},
		"another client, until the deadline of the run": {sequence("build").ActiveDeadline(60), story{
			jobIsSuspended, wait(time.Minute), steps("build: Stopping, DeadlineExceeded"),
		}},
	})
}

// jobIsAdmitted resumes the Job of build and starts a Pod, as a queue and the Job controller do.
func jobIsAdmitted(s *testEnv) {
	jobIsResumed(s)
	s.startPod("build")
	s.pass(wait(0), wait(startReportDelay))
}

// jobIsPreempted suspends the Job of build as a queue does, which deletes its Pod.
func jobIsPreempted(s *testEnv) {
	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	s.unfinishedPods = nil
	s.reconcileAfter(startReportDelay)
}

func TestPreemptedStepContinuesItsAttempt(t *testing.T) {
	s := startRun(t, sequence("build", "test").JobLabel(queueLabel, "batch"))
	s.pass(jobIsPreempted, phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting)) // before it was admitted
	for range 3 {
		s.pass(steps("build: Queued, Queued", "test: Pending"), wait(time.Hour), jobIsAdmitted, steps("build: Running", "test: Pending"), jobIsPreempted)
		s.pass(phase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunning))
	}
	s.pass(jobIsAdmitted, succeed("build"), steps("build: Succeeded", "test: Starting"), created("build", "test"))
	if step := s.stepStatus("build"); step.Attempt != 1 || step.FailedPods != 0 || step.FailedAttempts != 0 {
		t.Errorf("attempt %d, %d failed Pods, %d failed attempts", step.Attempt, step.FailedPods, step.FailedAttempts)
	}
}

func TestResumedStepIsNotRunningBecauseThePodBeforeStillStops(t *testing.T) {
	s := startRun(t, sequence("build").JobLabel(queueLabel, "batch")).pass(jobIsAdmitted, steps("build: Running"))
	stopping := s.unfinishedPods
	stopping[0].DeletionTimestamp = new(metav1.NewTime(s.now.Add(time.Minute)))
	jobIsPreempted(s)
	s.unfinishedPods = stopping
	s.newestJob("build").Spec.Suspend, s.newestJob("build").Status.Conditions = new(false), nil
	s.pass(wait(startReportDelay), steps("build: Starting"), jobIsAdmitted, steps("build: Running"))
}

func TestTimeLimitsOfAStepDoNotCountInAQueue(t *testing.T) {
	s := startRun(t, sequence().Step("build", testbuilder.StepStartDeadline(30)).JobLabel(queueLabel, "batch"))
	for range 2 { // also after a preemption
		s.pass(jobIsPreempted, wait(time.Hour), steps("build: Queued, Queued"), jobIsAdmitted, steps("build: Running"))
		got := s.stepStatus("build").StartTime
		require.True(t, got.Time.Equal(s.now.Add(-startReportDelay)), "the step started at %s, want the time at which it was admitted", got)
	}
}
