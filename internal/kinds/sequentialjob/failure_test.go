package sequentialjob

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestFailedStepSkipsLaterStepsAndFailsTheRun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Step("ship"))
	s.succeedStep("build")
	s.failStep("test")
	s.wantCreated("build", "test")
	s.wantSteps("build: Succeeded", "test: Failed, BackoffLimitExceeded", "ship: Skipped, PreviousStepFailed")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed)
	s.wantCondition(v1alpha1.ConditionFailed, `True StepFailed: step "test" failed: BackoffLimitExceeded: Job has reached the specified backoff limit`)
	s.wantCondition(v1alpha1.ConditionAvailable, `False StepFailed: step "test" failed: BackoffLimitExceeded: Job has reached the specified backoff limit`)
}

func TestFailedFinallyStepFailsTheRunAndSkipsNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("notify").Finally("cleanup"))
	s.succeedStep("build")
	s.failStep("notify")
	s.succeedStep("cleanup")
	s.wantSteps("build: Succeeded", "notify: Failed, BackoffLimitExceeded", "cleanup: Succeeded")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonFinallyFailed)

	// The spec no longer says that the step was finally.
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[:1] })
	s.reconcile()
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonFinallyFailed)
}

func TestFailureOfTheRunNamesTheFinallyStepsThatFailedToo(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("notify").Finally("cleanup"))
	s.failStep("build")
	s.failStep("notify")
	s.succeedStep("cleanup")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed)
	s.wantCondition(v1alpha1.ConditionFailed, `True StepFailed: step "build" failed: BackoffLimitExceeded: Job has reached the specified backoff limit; `+
		`finally step "notify" failed too: BackoffLimitExceeded`)
}

func TestContinueStartsTheNextStepAfterAFailure(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
	s.failStep("lint")
	s.succeedStep("build")
	s.wantSteps("lint: Failed, BackoffLimitExceeded", "build: Succeeded")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
	if !s.stepStatus("lint").Tolerated {
		t.Error("want lint's failure tolerated")
	}
	if s.sj.Status.Progress.FailedIndex != nil || s.sj.Status.State.Failed != 1 {
		t.Errorf("want one failed step and no failedIndex, got %+v, %+v", s.sj.Status.State, s.sj.Status.Progress)
	}
}

func TestInvalidStepOptionsAnnotationMeansDefaultOptions(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
	s.newestJob("lint").Annotations[v1alpha1.AnnotationStepOptions] = "nonsense"
	s.failStep("lint")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed)
}

func TestFailureMessageComesFromTheStepsPod(t *testing.T) {
	long := strings.Repeat("ä", 300)
	otherContainer := testbuilder.Pod("fetch").Exited(1, "").Obj()
	otherContainer.Labels[v1alpha1.LabelStep] = "build"
	tests := map[string]struct {
		pods []corev1.Pod
		want string
	}{
		"without a Pod, the message comes from the Job": {want: "Job has reached the specified backoff limit"},
		"exit code and termination message": {
			pods: []corev1.Pod{testbuilder.Pod("build").Exited(3, "no such table").Obj()},
			want: "container build exited with code 3: no such table",
		},
		"out of memory": {
			pods: []corev1.Pod{testbuilder.Pod("build").Killed("OOMKilled").Obj()},
			want: "container build exited with code 137 (OOMKilled)",
		},
		"evicted": {
			pods: []corev1.Pod{testbuilder.Pod("build").Evicted("the node was low on memory").Obj()},
			want: "Evicted: the node was low on memory",
		},
		"another container of the Pod failed": {
			pods: []corev1.Pod{otherContainer},
			want: "container fetch exited with code 1",
		},
		"several failed Pods: the newest one counts": {
			pods: []corev1.Pod{
				testbuilder.Pod("build").Created(time.Unix(1, 0)).Exited(1, "").Obj(),
				testbuilder.Pod("build").Created(time.Unix(3, 0)).Exited(3, "").Obj(),
				testbuilder.Pod("build").Created(time.Unix(2, 0)).Exited(2, "").Obj(),
				testbuilder.Pod("build").Created(time.Unix(4, 0)).Running().Obj(),
			},
			want: "container build exited with code 3",
		},
		"a long message is truncated to 256 bytes, between characters": {
			pods: []corev1.Pod{testbuilder.Pod("build").Exited(1, long).Obj()},
			want: "container build exited with code 1: " + strings.Repeat("ä", (256-36-3)/2) + "…",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
			s.pods[s.newestJob("build").UID] = test.pods
			s.failStep("build")
			if got := s.stepStatus("build").Message; got != test.want {
				t.Errorf("want %q, got %q", test.want, got)
			}
		})
	}
}
