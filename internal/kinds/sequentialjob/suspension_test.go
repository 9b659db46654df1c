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

// hasFinalizer checks whether the SequentialJob has the finalizer, which it has while something runs.
func hasFinalizer(want bool) func(*testEnv) {
	return func(s *testEnv) {
		if got := len(s.sj.Finalizers) > 0; got != want {
			s.t.Errorf("it has the finalizer: %t, want %t", got, want)
		}
	}
}

func jobIsSuspended(s *testEnv) {
	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	s.reconcile()
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
			func(s *testEnv) {
				if got := s.stepStatus("build").Attempt; got != 1 {
					s.t.Errorf("attempt %d, want 1", got)
				}
			},
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
			suspendRun, jobIsSuspended,
			func(s *testEnv) {
				s.newestJob("build").Spec.Suspend, s.newestJob("build").Status.Conditions = new(false), nil
				testbuilder.Job(s.newestJob("build")).Active(s.now)
			},
			wait(0), jobHasSuspend(true), steps("build: Starting"),
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
		if got := isSuspended(s.newestJob("build")); got != want {
			s.t.Errorf("the Job is suspended: %t, want %t", got, want)
		}
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
	s := startRun(t, sequence("build", "test").JobLabel("kueue.x-k8s.io/queue-name", "batch"))
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
	s.pass(succeed("build"), steps("build: Succeeded", "test: Starting"), created("build", "test"))
	if step := s.stepStatus("build"); step.Attempt != 1 || step.FailedPods != 0 || step.FailedAttempts != 0 {
		t.Errorf("attempt %d, %d failed Pods, %d failed attempts", step.Attempt, step.FailedPods, step.FailedAttempts)
	}
}

func TestResumedStepIsNotRunningBecauseThePodBeforeStillStops(t *testing.T) {
	s := startRun(t, sequence("build").JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	s.admitJob("build")
	s.wantSteps("build: Running")
	stopping := s.unfinishedPods
	stopping[0].DeletionTimestamp = new(metav1.NewTime(s.now.Add(time.Minute)))
	s.preemptJob("build")
	s.unfinishedPods = stopping
	s.newestJob("build").Spec.Suspend, s.newestJob("build").Status.Conditions = new(false), nil
	s.pass(wait(startReportDelay), steps("build: Starting"))
	s.admitJob("build")
	s.wantSteps("build: Running")
}

func TestTimeLimitsOfAStepDoNotCountInAQueue(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepStartDeadline(30)).JobLabel("kueue.x-k8s.io/queue-name", "batch"))
	for range 2 { // also after a preemption
		s.preemptJob("build")
		s.pass(wait(time.Hour), steps("build: Queued, Queued"))
		s.admitJob("build")
		s.wantSteps("build: Running")
		if got := s.stepStatus("build").StartTime; !got.Time.Equal(s.now.Add(-startReportDelay)) {
			t.Errorf("the step started at %s, want the time at which it was admitted", got)
		}
	}
}
