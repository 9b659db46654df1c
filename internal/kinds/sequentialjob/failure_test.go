package sequentialjob

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const backoffLimitMessage = "BackoffLimitExceeded: Job has reached the specified backoff limit"

func TestAFailureEndsTheRunUnlessItIsTolerated(t *testing.T) {
	tolerated := func(options ...testbuilder.StepOption) *testbuilder.SequentialJobBuilder {
		return sequence().Step("lint", append(options, testbuilder.ContinueOnFailure())...).Step("build")
	}
	isTolerated := func(s *testEnv) {
		require.True(s.t, s.stepStatus("lint").Tolerated, "the failure of lint is not tolerated")
	}
	const text = `StepFailed: step "test" failed: ` + backoffLimitMessage
	runScenarios(t, map[string]scenario{
		"of a step": {sequence("build", "test", "ship"), story{
			succeed("build"), fail("test"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
			steps("build: Succeeded", "test: Failed, BackoffLimitExceeded", "ship: Skipped, PreviousStepFailed"),
			hasCondition(v1alpha1.ConditionFailed, "True "+text), hasCondition(v1alpha1.ConditionAvailable, "False "+text),
		}},
		"of a finally step, also once the spec does not say so any more": {sequence("build").Finally("notify").Finally("cleanup"), story{
			succeed("build"), fail("notify"), succeed("cleanup"),
			steps("build: Succeeded", "notify: Failed, BackoffLimitExceeded", "cleanup: Succeeded"),
			phase(v1alpha1.PhaseFailed, v1alpha1.ReasonFinallyFailed),
			edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[:1] }),
			phase(v1alpha1.PhaseFailed, v1alpha1.ReasonFinallyFailed),
		}},
		"of a step and of a finally step": {sequence("test").Finally("notify").Finally("cleanup"), story{
			fail("test"), fail("notify"), succeed("cleanup"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
			hasCondition(v1alpha1.ConditionFailed, "True "+text+`; finally step "notify" failed too: BackoffLimitExceeded`),
		}},
		"of a step whose options of the Job are not readable": {tolerated(), story{
			func(s *testEnv) { s.newestJob("lint").Annotations[v1alpha1.AnnotationStepOptions] = "nonsense" },
			fail("lint"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
		}},
		"of a step whose Job is refused": {sequence("build", "test").Finally("cleanup"), story{
			refuse("test", decision.Invalid), succeed("build"), wait(0), created("build", "cleanup"),
			steps("build: Succeeded", "test: Failed, JobRejected", "cleanup: Starting"),
			func(s *testEnv) { assert.Equal(s.t, "message", "no", s.stepStatus("test").Message) },
		}},
		"of a step whose overlay became invalid": {sequence("build", "train"), story{
			edit(func(spec *v1alpha1.SequentialJobSpec) { overlay(`{"spec": 1}`)(&spec.Containers[1]) }),
			succeed("build"), steps("build: Succeeded", "train: Failed, JobRejected"), created("build"),
		}},
		"a tolerated one": {tolerated(), story{
			fail("lint"), isTolerated, succeed("build"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
			steps("lint: Failed, BackoffLimitExceeded", "build: Succeeded"),
		}},
		"a tolerated one is retried first": {tolerated(retry(1, 10, 600)), story{
			fail("lint"), created("lint"), wait(10 * time.Second), fail("lint"), isTolerated, created("lint", "lint", "build"),
		}},
		"a tolerated loss": {tolerated(), story{wait(time.Minute), lose("lint"), isTolerated, created("lint", "build")}},
		"a tolerated start that is too late": {tolerated(testbuilder.StepStartDeadline(30)), story{
			func(s *testEnv) { testbuilder.Job(s.newestJob("lint")).PodPending(s.now) },
			wait(time.Hour), removeJobs, isTolerated, created("lint", "build"),
		}},
		"a tolerated output that is invalid": {tolerated(testbuilder.RecordOutput()), story{
			func(s *testEnv) {
				s.pods[s.newestJob("lint").UID] = []corev1.Pod{testbuilder.Pod("lint").Exited(0, "\x00").Obj()}
			},
			succeed("lint"), isTolerated, steps("lint: Failed, OutputInvalid", "build: Starting"),
		}},
	})
}

func TestFailureMessageComesFromTheStepsPod(t *testing.T) {
	otherContainer := testbuilder.Pod("fetch").Exited(1, "").Obj()
	otherContainer.Labels[v1alpha1.LabelStep] = "build"
	pod := func() *testbuilder.PodBuilder { return testbuilder.Pod("build") }
	for name, test := range map[string]struct {
		want string
		pods []corev1.Pod
	}{
		"without a Pod, the message comes from the Job": {"Job has reached the specified backoff limit", nil},
		"exit code and termination message": {
			"container build exited with code 3: no such table", []corev1.Pod{pod().Exited(3, "no such table").Obj()},
		},
		"out of memory":                       {"container build exited with code 137 (OOMKilled)", []corev1.Pod{pod().Killed("OOMKilled").Obj()}},
		"evicted":                             {"Evicted: the node was low on memory", []corev1.Pod{pod().Evicted("the node was low on memory").Obj()}},
		"another container of the Pod failed": {"container fetch exited with code 1", []corev1.Pod{otherContainer}},
		"several failed Pods: the newest one counts": {"container build exited with code 3", []corev1.Pod{
			pod().Created(time.Unix(1, 0)).Exited(1, "").Obj(), pod().Created(time.Unix(3, 0)).Exited(3, "").Obj(),
			pod().Created(time.Unix(2, 0)).Exited(2, "").Obj(), pod().Created(time.Unix(4, 0)).Running().Obj(),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, sequence("build"))
			s.pods[s.newestJob("build").UID] = test.pods
			s.failStep("build")
			assert.Equal(t, "message", test.want, s.stepStatus("build").Message)
		})
	}
}

func TestALostJobFailsItsStepUnlessTheSpecSaysOtherwise(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"it fails": {sequence("build", "test").Finally("cleanup"), story{
			wait(time.Minute), lose("build"), steps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed", "cleanup: Starting"),
		}},
		"another attempt follows": {sequence("build", "test").RerunLostJobs(), story{
			wait(time.Minute), lose("build"), created("build", "build"),
			succeed("build", "test"), steps("build: Succeeded", "test: Succeeded"),
		}},
		"another attempt waits until the run is resumed": {sequence("build").RerunLostJobs(), story{
			suspendRun, lose("build"), steps("build: Lost, JobLost"), resumeRun, created("build", "build"),
		}},
		"a Job with another UID is not that of the step": {sequence("build", "test"), story{
			wait(time.Minute),
			func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Created("another", s.now).Complete(s.now) },
			wait(0), steps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed"),
		}},
		"it is not retried": {sequence().Step("build", retry(1, 10, 600)), story{lose("build"), steps("build: Failed, JobLost")}},
		"no attempt follows at a step that was removed": {sequence("build", "test").RerunLostJobs(), story{
			wait(time.Minute), edit(removeFirstStep), lose("build"), created("build"),
			steps("build: Failed, JobRejected", "test: Skipped, PreviousStepFailed"),
		}},
		"nor of a step that was removed before its Job was created": {sequence("lint", "build", "test"), story{
			refuse("build", decision.QuotaExceeded), succeed("lint"), edit(removeFirstStep), edit(removeFirstStep), created("lint"),
			steps("lint: Succeeded", "build: Failed, JobRejected", "test: Skipped, PreviousStepFailed"),
		}},
	})
}
