package sequentialjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func retry(limit, backoff, longest int32) testbuilder.StepOption {
	return testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Retry = &v1alpha1.StepRetry{Retry: v1alpha1.Retry{
			Limit: &limit, Backoff: duration(time.Duration(backoff) * time.Second), MaxBackoff: duration(time.Duration(longest) * time.Second),
		}}
	})
}

func duration(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

func TestRetriesEndAfterTheirMaxDuration(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(9, 10, 10), testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Retry.MaxDuration = duration(30 * time.Second)
	})))
	for attempt := range 3 { // they start after 0, 15 and 30 seconds
		s.wantSteps([]string{"build: Starting", "build: Starting, BackoffLimitExceeded", "build: Starting, BackoffLimitExceeded"}[attempt])
		s.now = s.now.Add(5 * time.Second)
		if attempt == 2 {
			break
		}
		s.failStep("build")
		if attempt == 1 { // an attempt that is lost in between changes nothing
			s.restartOperator()
		}
		s.reconcileAfter(10 * time.Second)
	}
	s.failStep("build")
	s.wantSteps("build: Failed, BackoffLimitExceeded")
	s.wantCreated("build", "build", "build")

	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}}
	})
	s.reconcile()
	s.failStep("build")
	if step := s.stepStatus("build"); step.Phase != v1alpha1.StepRetrying || !step.FirstStartTime.Time.Equal(s.now) {
		t.Errorf("the duration does not begin again with the run: %+v", step)
	}
}

func TestFailedStepIsTriedAgainAfterItsBackoff(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(2, 10, 600)).Step("test"))
	s.events = nil
	decision := s.failStep("build")
	s.wantCreated("build")
	s.wantSteps("build: Retrying, BackoffLimitExceeded", "test: Pending")
	s.wantPhase(v1alpha1.PhaseRunning, v1alpha1.ReasonRetrying)
	const message = `attempt 1 of step "build" failed: BackoffLimitExceeded: Job has reached the specified backoff limit; attempt 2 starts at 2026-01-01T12:00:10Z`
	s.wantCondition(v1alpha1.ConditionProgressing, "True Retrying: "+message)
	s.wantEvents(v1alpha1.EventJobFailed)
	if s.sj.Status.Reason != v1alpha1.ReasonRetrying || decision.RequeueAfter != 10*time.Second {
		t.Errorf("reason %q, the next decision is in %s", s.sj.Status.Reason, decision.RequeueAfter)
	}

	s.reconcileAfter(9 * time.Second)
	s.wantCreated("build")
	s.reconcileAfter(time.Second)
	s.wantCreated("build", "build")
	if step := s.stepStatus("build"); step.Attempt != 2 || step.FailedAttempts != 1 || step.NextAttemptTime != nil || s.sj.Status.Reason != "" {
		t.Errorf("the step is %+v, the reason %q", step, s.sj.Status.Reason)
	}

	if decision := s.failStep("build"); decision.RequeueAfter != 20*time.Second {
		t.Errorf("the third attempt is in %s, want 20 s", decision.RequeueAfter)
	}
	s.reconcileAfter(20 * time.Second)
	s.succeedStep("build")
	s.wantCreated("build", "build", "build", "test")
	if step := s.stepStatus("build"); step.Phase != v1alpha1.StepSucceeded || step.Attempt != 3 || step.FailedAttempts != 2 {
		t.Errorf("the step is %+v", step)
	}
}

func TestStepFailsAfterItsLastAttempt(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600)).Step("test").Finally("clean"))
	s.failStep("build")
	s.reconcileAfter(10 * time.Second)
	s.failStep("build")
	s.wantSteps("build: Failed, BackoffLimitExceeded", "test: Skipped, PreviousStepFailed", "clean: Starting")
}

func TestOnlyFailuresThatMayPassAreRetried(t *testing.T) {
	for reason, want := range map[string]v1alpha1.StepPhase{
		batchv1.JobReasonBackoffLimitExceeded:     v1alpha1.StepRetrying,
		batchv1.JobReasonDeadlineExceeded:         v1alpha1.StepRetrying,
		batchv1.JobReasonFailedIndexes:            v1alpha1.StepRetrying,
		batchv1.JobReasonMaxFailedIndexesExceeded: v1alpha1.StepRetrying,
		batchv1.JobReasonPodFailurePolicy:         v1alpha1.StepFailed,
		"OfAnotherController":                     v1alpha1.StepFailed,
	} {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600)))
		testbuilder.Job(s.newestJob("build")).Failed(reason, "", s.now)
		s.reconcile()
		if got := s.stepStatus("build").Phase; got != want {
			t.Errorf("after %s the step is %s, want %s", reason, got, want)
		}
	}
}

func TestLostJobIsNotRetried(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600)))
	s.loseJob("build")
	s.wantSteps("build: Failed, JobLost")
}

func TestToleratedFailureIsRetriedFirst(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600), testbuilder.ContinueOnFailure()).Step("test"))
	s.failStep("build")
	s.wantCreated("build")
	s.reconcileAfter(10 * time.Second)
	s.failStep("build")
	s.wantCreated("build", "build", "test")
	if step := s.stepStatus("build"); !step.Tolerated {
		t.Errorf("the step is %+v", step)
	}
}

func TestRetryThatTheDeadlineOfTheRunForbidsIsNotAwaited(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600)).Finally("clean", retry(1, 60, 600)).ActiveDeadline(10))
	s.failStep("build")
	s.wantSteps("build: Failed, BackoffLimitExceeded", "clean: Starting")
	s.failStep("clean") // the deadline does not apply to finally
	s.wantSteps("build: Failed, BackoffLimitExceeded", "clean: Retrying, BackoffLimitExceeded")
}

func TestStepIsNotRetriedWhileTheRunIsSuspended(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600)))
	s.failStep("build")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = true })
	s.reconcileAfter(time.Hour)
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	s.wantCreated("build")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = false })
	s.reconcile()
	s.wantCreated("build", "build")
}

func TestDeadlineThatPassesWhileSuspendedEndsTheRetry(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600)).ActiveDeadline(60))
	s.failStep("build")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.ActiveDeadlineSeconds = new(int64(5)) })
	s.reconcileAfter(20 * time.Second)
	s.wantSteps("build: Failed, BackoffLimitExceeded")
	s.wantCondition(v1alpha1.ConditionFailed, `True DeadlineExceeded: step "build" failed: BackoffLimitExceeded: Job has reached the specified backoff limit`)
}

func TestStepCanBeCorrectedBeforeItsNextAttempt(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600)))
	s.failStep("build")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].Image = "corrected" })
	if errs := ImmutabilityViolations(nil, &s.sj.Spec, &s.sj.Status); len(errs) > 0 {
		t.Fatalf("the change is refused: %v", errs)
	}
	s.reconcileAfter(10 * time.Second)
	if got := s.newestJob("build").Spec.Template.Spec.Containers[0].Image; got != "corrected" {
		t.Errorf("the second attempt uses image %s", got)
	}
}

func TestJobsOfFailedAttemptsCountAsHistory(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build", retry(2, 10, 600)).Obj()
	sj.Spec.JobHistoryLimit = new(int32(0))
	s := newTestEnv(t, sj)
	s.reconcile()
	first := s.newestJob("build")
	s.failStep("build")
	if first.DeletionTimestamp == nil {
		t.Error("the Job of the failed attempt is kept")
	}
}
