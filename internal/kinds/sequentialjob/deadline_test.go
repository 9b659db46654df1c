package sequentialjob

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestRunThatExceedsItsDeadlineIsStoppedAndRunsFinally(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").ActiveDeadline(60))
	if decision := s.reconcileAfter(20 * time.Second); decision.RequeueAfter != 40*time.Second {
		t.Errorf("want a reconciliation in the 40 s that are left, got %s", decision.RequeueAfter)
	}

	decision := s.reconcileAfter(40 * time.Second)
	if diff := cmp.Diff([]string{"build"}, deletedStepNames(decision)); diff != "" {
		t.Errorf("deleted (-want, +got):\n%s", diff)
	}
	s.wantSteps("build: Stopping, DeadlineExceeded", "test: Pending", "cleanup: Pending")
	if got := s.sj.Status.DeadlineExceededTime; got == nil || !got.Time.Equal(s.now) {
		t.Errorf("want the deadline recorded as exceeded at %s, got %s", s.now, got)
	}

	s.removeDeletedJobs()
	s.wantSteps("build: Failed, DeadlineExceeded", "test: Skipped, PreviousStepFailed", "cleanup: Starting")
	s.reconcileAfter(time.Hour)
	s.succeedStep("cleanup")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
	s.wantCreated("build", "cleanup")
}

func TestStepThatEndsWhileItIsStoppedKeepsItsOutcome(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").ActiveDeadline(60))
	s.reconcileAfter(time.Hour)
	s.succeedStep("build")
	s.wantSteps("build: Succeeded")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestStepsAfterTheDeadlineAreSkipped(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").ActiveDeadline(60))
	s.now = s.now.Add(time.Hour)
	s.succeedStep("build")
	s.succeedStep("cleanup")
	s.wantSteps("build: Succeeded", "test: Skipped, DeadlineExceeded", "cleanup: Succeeded")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
}

func TestRunDeadlineIsNotTolerated(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.ContinueOnFailure()).Step("test").ActiveDeadline(60))
	s.reconcileAfter(time.Hour)
	s.removeDeletedJobs()
	s.wantCreated("build")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
}

func TestDeadlineOfAStepIsNotTheDeadlineOfTheRun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").ActiveDeadline(60))
	testbuilder.Job(s.newestJob("build")).Failed(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline", s.now)
	s.reconcile()
	s.wantSteps("build: Failed, StepDeadlineExceeded")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed)
	if got := s.sj.Status.DeadlineExceededTime; got != nil {
		t.Errorf("the run is recorded as exceeding its deadline at %s", got)
	}
}

func withInitContainer(pod corev1.Pod, initContainer string, state corev1.ContainerState) corev1.Pod {
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: initContainer, State: state}}
	return pod
}

// withSidecar makes the init container a native sidecar.
func withSidecar(pod corev1.Pod) corev1.Pod {
	pod.Spec.InitContainers = []corev1.Container{{Name: pod.Status.InitContainerStatuses[0].Name, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	return pod
}

func TestStartDeadlineEndsAStepWhosePodCannotStart(t *testing.T) {
	tests := map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"an image that cannot be pulled": {
			pod:  testbuilder.Pod("build").Waiting("ImagePullBackOff", "Back-off pulling image").Obj(),
			want: "container build did not start within 30 s: ImagePullBackOff: Back-off pulling image",
		},
		"a Pod that fits no node": {
			pod:  testbuilder.Pod("build").Unschedulable("0/3 nodes are available").Obj(),
			want: "container build did not start within 30 s: Unschedulable: 0/3 nodes are available",
		},
		"a native sidecar that runs, and an image that cannot be pulled": {
			pod:  withInitContainer(testbuilder.Pod("build").Waiting("ErrImagePull", "not found").Obj(), "proxy", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
			want: "container build did not start within 30 s: ErrImagePull: not found",
		},
		"an init container that ended, and a missing Secret": {
			pod:  withInitContainer(testbuilder.Pod("build").Waiting("CreateContainerConfigError", "no Secret").Obj(), "prepare", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}),
			want: "container build did not start within 30 s: CreateContainerConfigError: no Secret",
		},
		"an init container that does not end": {
			pod:  withInitContainer(testbuilder.Pod("build").Waiting("PodInitializing", "").Obj(), "prepare", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
			want: "container build did not start within 30 s: init container prepare has not ended",
		},
		"a native sidecar that does not start": {
			pod:  withSidecar(withInitContainer(testbuilder.Pod("build").Waiting("PodInitializing", "").Obj(), "proxy", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})),
			want: "container build did not start within 30 s: sidecar proxy has not started",
		},
		"a Pod that failed before its container started": {
			pod:  withInitContainer(testbuilder.Pod("build").Evicted("the node was low on memory").Obj(), "prepare", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
			want: "container build did not start within 30 s",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepStartDeadline(30)).Finally("cleanup"))
			testbuilder.Job(s.newestJob("build")).PodPending(s.now)
			s.pods[s.newestJob("build").UID] = []corev1.Pod{test.pod}
			if decision.HasPodEnded(&test.pod) {
				s.newestJob("build").Status.Failed = 1
			}

			if decision := s.reconcileAfter(20 * time.Second); decision.RequeueAfter != 10*time.Second {
				t.Errorf("want a reconciliation in the 10 s that are left, got %s", decision.RequeueAfter)
			}
			s.reconcileAfter(10 * time.Second)
			s.removeDeletedJobs()
			s.wantSteps("build: Failed, StartDeadlineExceeded", "cleanup: Starting")
			if got := s.stepStatus("build").Message; got != test.want {
				t.Errorf("want %q, got %q", test.want, got)
			}
		})
	}
}

func TestStartDeadlineDoesNotApplyOnceAPodStarted(t *testing.T) {
	tests := map[string]struct {
		happens func(*testEnv)
		want    string
	}{
		"the Job counts a ready Pod": {func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Active(s.now) }, "build: Starting"},
		"a Pod runs but is not ready": {func(s *testEnv) {
			testbuilder.Job(s.newestJob("build")).PodPending(s.now)
			s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Running().Obj()}
		}, "build: Starting"},
		"the container failed, and its next Pod cannot start": {func(s *testEnv) {
			testbuilder.Job(s.newestJob("build")).PodPending(s.now)
			s.newestJob("build").Status.Failed = 1
			s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Exited(1, "").Obj(), testbuilder.Pod("build").Unschedulable("").Obj()}
		}, "build: Starting"},
		"the container waits after a failure to be restarted": {func(s *testEnv) {
			testbuilder.Job(s.newestJob("build")).PodPending(s.now)
			pod := testbuilder.Pod("build").Waiting("CrashLoopBackOff", "").Obj()
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
			s.pods[s.newestJob("build").UID] = []corev1.Pod{pod}
		}, "build: Starting"},
		"a queue has not admitted the Job yet": {func(s *testEnv) {
			s.newestJob("build").Labels[queueLabel] = "q"
			testbuilder.Job(s.newestJob("build")).Suspended(s.now)
		}, "build: Queued, Queued"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepStartDeadline(30)))
			test.happens(s)
			s.reconcileAfter(time.Hour)
			s.wantSteps(test.want)
		})
	}
}

// The API server refuses longer ones.
func TestTheLongestDeadlinesDoNotPass(t *testing.T) {
	const longest = math.MaxInt32
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepStartDeadline(longest)).ActiveDeadline(longest).TTLAfterFinished(longest))
	testbuilder.Job(s.newestJob("build")).PodPending(s.now)
	s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Waiting("ErrImagePull", "").Obj()}
	if got := s.reconcileAfter(365 * 24 * time.Hour); got.RequeueAfter < 0 {
		t.Errorf("the next decision is due in %s", got.RequeueAfter)
	}
	s.wantSteps("build: Starting")
	if s.succeedStep("build").DeleteExpired {
		t.Error("the SequentialJob is deleted at once")
	}
}

func TestStartDeadlineIsToleratedLikeOtherFailures(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepStartDeadline(30), testbuilder.ContinueOnFailure()).Step("test"))
	testbuilder.Job(s.newestJob("build")).PodPending(s.now)
	s.reconcileAfter(time.Hour)
	s.removeDeletedJobs()
	s.wantCreated("build", "test")
}

func TestFinishedSequentialJobExpires(t *testing.T) {
	tests := map[string]func(*testEnv){
		"after success": func(s *testEnv) { s.succeedStep("build") },
		"after failure": func(s *testEnv) { s.failStep("build") },
	}
	for name, ends := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTLAfterFinished(100))
			ends(s)
			if decision := s.reconcileAfter(40 * time.Second); decision.DeleteExpired || decision.RequeueAfter != time.Minute {
				t.Errorf("want a reconciliation in a minute, got %+v", decision)
			}
			if decision := s.reconcileAfter(time.Minute); !decision.DeleteExpired {
				t.Error("want it deleted")
			}
		})
	}
	t.Run("not while it runs", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTLAfterFinished(0))
		if decision := s.reconcileAfter(time.Hour); decision.DeleteExpired {
			t.Error("want it kept")
		}
	})
}
