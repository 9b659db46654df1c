package sequentialjob

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestRunThatExceedsItsDeadlineIsStoppedAndRunsFinally(t *testing.T) {
	s := startRun(t, sequence("build", "test").Finally("cleanup").ActiveDeadline(60))
	assert.Equal(t, "the next decision", 40*time.Second, s.reconcileAfter(20*time.Second).RequeueAfter)
	s.pass(wait(40*time.Second), steps("build: Stopping, DeadlineExceeded", "test: Pending", "cleanup: Pending"))
	got := s.sj.Status.DeadlineExceededTime
	require.True(t, got != nil && got.Time.Equal(s.now), "want the deadline recorded as exceeded at %s, got %s", s.now, got)
	s.pass(
		removeJobs, steps("build: Failed, DeadlineExceeded", "test: Skipped, PreviousStepFailed", "cleanup: Starting"), wait(time.Hour),
		succeed("cleanup"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded), created("build", "cleanup"),
	)
}

func TestOnlyTheDeadlineOfTheRunFailsTheRun(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"not a step that ends by itself while it is stopped": {sequence("build").ActiveDeadline(60), story{
			wait(time.Hour), succeed("build"), steps("build: Succeeded"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
		}},
		"whatever failures are tolerated": {
			sequence().Step("build", testbuilder.ContinueOnFailure()).Step("test").ActiveDeadline(60), story{
				wait(time.Hour), removeJobs, created("build"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded),
			},
		},
		"not that of a step": {sequence("build").ActiveDeadline(60), story{
			func(s *testEnv) {
				testbuilder.Job(s.newestJob("build")).Failed(batchv1.JobReasonDeadlineExceeded, "", s.now)
			},
			wait(0), steps("build: Failed, StepDeadlineExceeded"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
		}},
		"while a quota delays a step": {sequence("build", "test").ActiveDeadline(60), story{
			refuse("test", decision.QuotaExceeded), succeed("build"), wait(time.Hour),
			steps("build: Succeeded", "test: Failed, DeadlineExceeded"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded),
		}},
		"while a Policy delays a step": {sequence("build", "test").ActiveDeadline(60), story{
			func(s *testEnv) { s.policies = testbuilder.AllowImages("other:*") },
			succeed("build"), wait(time.Hour), steps("build: Succeeded", "test: Failed, DeadlineExceeded"),
		}},
	})
}

func withInitContainer(pod corev1.Pod, initContainer string, state corev1.ContainerState) corev1.Pod {
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: initContainer, State: state}}
	return pod
}

func TestStartDeadlineEndsAStepWhosePodCannotStart(t *testing.T) {
	pod := func() *testbuilder.PodBuilder { return testbuilder.Pod("build") }
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	initializing := withInitContainer(pod().Waiting("PodInitializing", "").Obj(), "prepare", running)
	sidecar := *initializing.DeepCopy()
	sidecar.Spec.InitContainers = []corev1.Container{{Name: "prepare", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want string // after that it did not start
	}{
		"an image that cannot be pulled": {pod().Waiting("ImagePullBackOff", "Back-off").Obj(), ": ImagePullBackOff: Back-off"},
		"a Pod that fits no node":        {pod().Unschedulable("no node").Obj(), ": Unschedulable: no node"},
		"a native sidecar that runs, and an image that cannot be pulled": {
			withInitContainer(pod().Waiting("ErrImagePull", "not found").Obj(), "proxy", running), ": ErrImagePull: not found",
		},
		"an init container that ended, and a missing Secret": {
			withInitContainer(pod().Waiting("CreateContainerConfigError", "no Secret").Obj(), "prepare",
				corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}),
			": CreateContainerConfigError: no Secret",
		},
		"an init container that does not end":            {initializing, ": init container prepare has not ended"},
		"a native sidecar that does not start":           {sidecar, ": sidecar prepare has not started"},
		"a Pod that failed before its container started": {withInitContainer(pod().Evicted("low on memory").Obj(), "prepare", running), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, sequence().Step("build", testbuilder.StepStartDeadline(30)).Finally("cleanup"))
			testbuilder.Job(s.newestJob("build")).PodPending(s.now)
			s.pods[s.newestJob("build").UID] = []corev1.Pod{test.pod}
			if decision.HasPodEnded(&test.pod) {
				s.newestJob("build").Status.Failed = 1
			}

			assert.Equal(t, "wait for the next decision", 10*time.Second, s.reconcileAfter(20*time.Second).RequeueAfter)
			s.pass(wait(10*time.Second), removeJobs, steps("build: Failed, StartDeadlineExceeded", "cleanup: Starting"))
			assert.Equal(t, "message", "container build did not start within 30 s"+test.want, s.stepStatus("build").Message)
		})
	}
}

func TestStartDeadlineDoesNotApplyOnceAPodStarted(t *testing.T) {
	withPods := func(s *testEnv, failed int32, pods ...corev1.Pod) {
		job := testbuilder.Job(s.newestJob("build")).PodPending(s.now).Obj()
		job.Status.Failed, s.pods[job.UID] = failed, pods
	}
	for title, happens := range map[string]func(*testEnv){
		"the Job counts a ready Pod":  func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Active(s.now) },
		"a Pod runs but is not ready": func(s *testEnv) { withPods(s, 0, testbuilder.Pod("build").Running().Obj()) },
		"the container failed, and its next Pod cannot start": func(s *testEnv) {
			withPods(s, 1, testbuilder.Pod("build").Exited(1, "").Obj(), testbuilder.Pod("build").Unschedulable("").Obj())
		},
		"the container waits after a failure to be restarted": func(s *testEnv) {
			pod := testbuilder.Pod("build").Waiting("CrashLoopBackOff", "").Obj()
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
			withPods(s, 0, pod)
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := startRun(t, sequence().Step("build", testbuilder.StepStartDeadline(30)))
			s.pass(happens, wait(time.Hour), steps("build: Starting"))
		})
	}
}

// The API server refuses longer ones.
func TestTheLongestDeadlinesDoNotPass(t *testing.T) {
	const longest = math.MaxInt32
	s := startRun(t, sequence().Step("build", testbuilder.StepStartDeadline(longest)).ActiveDeadline(longest).TTLAfterFinished(longest))
	testbuilder.Job(s.newestJob("build")).PodPending(s.now)
	s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Waiting("ErrImagePull", "").Obj()}
	got := s.reconcileAfter(365 * 24 * time.Hour)
	require.True(t, got.RequeueAfter >= 0, "the next decision is due in %s", got.RequeueAfter)
	s.pass(steps("build: Starting"), succeed("build"), isExpired(false))
}

func TestFinishedSequentialJobExpires(t *testing.T) {
	for _, end := range []func(*testEnv){succeed("build"), fail("build")} {
		s := startRun(t, sequence("build").TTLAfterFinished(100)).pass(wait(time.Hour), isExpired(false), end)
		decision := s.reconcileAfter(40 * time.Second)
		require.True(t, !decision.DeleteExpired && decision.RequeueAfter == time.Minute, "want a reconciliation in a minute, got %+v", decision)
		s.pass(wait(time.Minute), isExpired(true))
	}
}
