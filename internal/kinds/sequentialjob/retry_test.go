package sequentialjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
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
	s := startRun(t, sequence().Step("build", retry(9, 10, 10), testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Retry.MaxDuration = duration(30 * time.Second)
	})))
	later := func(s *testEnv) { s.now = s.now.Add(5 * time.Second) }
	restart := func(s *testEnv) { s.restartOperator() }
	s.pass(story{ // they start after 0, 15 and 30 seconds; a restart changes nothing
		later, fail("build"), wait(10 * time.Second), steps("build: Starting, BackoffLimitExceeded"),
		later, fail("build"), restart, wait(10 * time.Second), steps("build: Starting, BackoffLimitExceeded"),
		later, fail("build"), steps("build: Failed, BackoffLimitExceeded"), created("build", "build", "build"),
	}...)

	s.pass(rerun(v1alpha1.RerunFromFailed), fail("build"))
	if step := s.stepStatus("build"); step.Phase != v1alpha1.StepRetrying || !step.FirstStartTime.Time.Equal(s.now) {
		t.Errorf("the duration does not begin again with the run: %+v", step)
	}
}

func TestFailedStepIsTriedAgainAfterItsBackoff(t *testing.T) {
	const message = `attempt 1 of step "build" failed: ` + backoffLimitMessage + `; attempt 2 starts at 2026-01-01T12:00:10Z`
	failsAndWaits := func(want time.Duration) func(*testEnv) {
		return func(s *testEnv) {
			assert.Equal(s.t, "wait for the next decision", want, s.failStep("build").RequeueAfter)
		}
	}
	attempts := func(attempt, failed int32, reason string) func(*testEnv) {
		return func(s *testEnv) {
			step := s.stepStatus("build")
			if step.Attempt != attempt || step.FailedAttempts != failed || (step.NextAttemptTime == nil) == (reason != "") || s.sj.Status.Reason != reason {
				s.t.Errorf("the step is %+v, the reason %q", step, s.sj.Status.Reason)
			}
		}
	}
	startRun(t, sequence().Step("build", retry(2, 10, 600)).Step("test")).pass(story{
		failsAndWaits(10 * time.Second), created("build"), steps("build: Retrying, BackoffLimitExceeded", "test: Pending"),
		phase(v1alpha1.PhaseRunning, v1alpha1.ReasonRetrying), hasCondition(v1alpha1.ConditionProgressing, "True Retrying: "+message),
		events(v1alpha1.EventJobStarted, v1alpha1.EventJobFailed), attempts(1, 1, v1alpha1.ReasonRetrying),
		wait(9 * time.Second), created("build"), wait(time.Second), created("build", "build"), attempts(2, 1, ""),
		failsAndWaits(20 * time.Second), wait(20 * time.Second), attempts(3, 2, ""), succeed("build"), created("build", "build", "build", "test"),
	}...)
}

func TestRetriesFollowTheRulesOfTheRun(t *testing.T) {
	build := func() *testbuilder.SequentialJobBuilder {
		return sequence().Step("build", retry(1, 10, 600))
	}
	runScenarios(t, map[string]scenario{
		"the step fails after its last attempt": {build().Step("test").Finally("clean"), story{
			fail("build"), wait(10 * time.Second), fail("build"),
			steps("build: Failed, BackoffLimitExceeded", "test: Skipped, PreviousStepFailed", "clean: Starting"),
		}},
		"no attempt is awaited that the deadline of the run forbids, except at a finally step": {
			build().Finally("clean", retry(1, 60, 600)).ActiveDeadline(10), story{
				fail("build"), steps("build: Failed, BackoffLimitExceeded", "clean: Starting"),
				fail("clean"), steps("build: Failed, BackoffLimitExceeded", "clean: Retrying, BackoffLimitExceeded"),
			},
		},
		"none starts while the run is suspended": {build(), story{
			fail("build"), suspendRun, wait(time.Hour), phase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended), created("build"),
			resumeRun, created("build", "build"),
		}},
		"a deadline that becomes shorter ends the retry": {build().ActiveDeadline(60), story{
			fail("build"),
			edit(func(spec *v1alpha1.SequentialJobSpec) { spec.ActiveDeadlineSeconds = new(int64(5)) }),
			wait(20 * time.Second), steps("build: Failed, BackoffLimitExceeded"),
			hasCondition(v1alpha1.ConditionFailed, `True DeadlineExceeded: step "build" failed: `+backoffLimitMessage),
		}},
		"the step can be corrected before its next attempt": {build(), story{
			fail("build"),
			func(s *testEnv) {
				s.changeSpec(setImage("corrected"))
				errs := ImmutabilityViolations(nil, &s.sj.Spec, &s.sj.Status)
				require.True(s.t, len(errs) == 0, "the change is refused: %v", errs)
			},
			wait(10 * time.Second), created("build", "build"), runsImage("build", "corrected"),
		}},
	})
	isTooLate := func() story {
		return story{func(s *testEnv) { testbuilder.Job(s.newestJob("build")).PodPending(s.now) }, wait(30 * time.Second), steps("build: Stopping, StartDeadlineExceeded")}
	}
	late := testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600), testbuilder.StepStartDeadline(30))
	runScenarios(t, map[string]scenario{
		"an attempt follows a Job that did not start in time":                {late, append(isTooLate(), removeJobs, steps("build: Retrying, StartDeadlineExceeded"))},
		"none follows a Job of which nobody saw whether it had ended before": {late, append(isTooLate(), (*testEnv).restartOperator, removeJobs, steps("build: Failed, JobLost"))},
	})
	for reason, want := range map[string]v1alpha1.StepPhase{
		batchv1.JobReasonBackoffLimitExceeded:     v1alpha1.StepRetrying,
		batchv1.JobReasonDeadlineExceeded:         v1alpha1.StepRetrying,
		batchv1.JobReasonFailedIndexes:            v1alpha1.StepRetrying,
		batchv1.JobReasonMaxFailedIndexesExceeded: v1alpha1.StepRetrying,
		batchv1.JobReasonPodFailurePolicy:         v1alpha1.StepFailed, // another attempt would repeat it
		"OfAnotherController":                     v1alpha1.StepFailed,
	} {
		s := startRun(t, build())
		testbuilder.Job(s.newestJob("build")).Failed(reason, "", s.now)
		s.reconcile()
		assert.Equal(t, "phase after "+reason, want, s.stepStatus("build").Phase)
	}
}
