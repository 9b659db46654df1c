package sequence

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestARunThatExceedsItsDeadlineIsStoppedAndItsFinallyRuns(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").Deadline(60))
	if decision := s.after(20 * time.Second); decision.RequeueAfter != 40*time.Second {
		t.Errorf("want to look again in the 40 s that are left, got %s", decision.RequeueAfter)
	}

	decision := s.after(40 * time.Second)
	if diff := cmp.Diff([]string{"build"}, deletes(decision)); diff != "" {
		t.Errorf("deleted (-want, +got):\n%s", diff)
	}
	s.wantSteps("build: Stopping, DeadlineExceeded", "test: Pending", "cleanup: Pending")
	if got := s.sj.Status.DeadlineExceededTime; got == nil || !got.Time.Equal(s.now) {
		t.Errorf("want the deadline recorded as exceeded at %s, got %s", s.now, got)
	}

	s.collect()
	s.wantSteps("build: Failed, DeadlineExceeded", "test: Skipped, PreviousStepFailed", "cleanup: Running")
	s.after(time.Hour)
	s.succeed("cleanup")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
	s.wantMade("build", "cleanup")
}

func TestFinallyWaitsUntilTheStoppedJobIsGone(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup").Deadline(60))
	s.after(time.Hour)
	s.after(time.Hour)
	s.wantMade("build")
	s.collect()
	s.wantMade("build", "cleanup")
}

func TestAStepThatEndedWhileItWasBeingStoppedKeepsItsOutcome(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Deadline(60))
	s.after(time.Hour)
	s.succeed("build")
	s.wantSteps("build: Succeeded")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestStepsThatADeadlineLeavesNoTurnAreSkipped(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").Deadline(60))
	s.now = s.now.Add(time.Hour)
	s.succeed("build")
	s.succeed("cleanup")
	s.wantSteps("build: Succeeded", "test: Skipped, DeadlineExceeded", "cleanup: Succeeded")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
}

func TestADeadlineIsNotToleratedAsAStepsFailureIs(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.ContinueOnFailure()).Step("test").Deadline(60))
	s.after(time.Hour)
	s.collect()
	s.wantMade("build")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded)
}

func TestDeadlineOfAStepIsNotTheDeadlineOfTheRun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Deadline(60))
	testbuilder.Job(s.job("build")).Failed(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline", s.now)
	s.reconcile()
	s.wantSteps("build: Failed, DeadlineExceeded")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed)
	if got := s.sj.Status.DeadlineExceededTime; got != nil {
		t.Errorf("the run is recorded as exceeding its deadline at %s", got)
	}
}

// Upstream waited for ever for an image that could not be pulled.
func TestUpstreamImagePullErrorsDoNotHangForEver(t *testing.T) {
	tests := map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"an image that cannot be pulled": {
			pod:  testbuilder.Pod("build").Waiting("ImagePullBackOff", "Back-off pulling image").Obj(),
			want: "no Pod started within 30 s: ImagePullBackOff: Back-off pulling image",
		},
		"a Pod that fits no node": {
			pod:  testbuilder.Pod("build").Unschedulable("0/3 nodes are available").Obj(),
			want: "no Pod started within 30 s: Unschedulable: 0/3 nodes are available",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StartDeadline(30)).Finally("cleanup"))
			testbuilder.Job(s.job("build")).PodPending(s.now)
			s.pods[s.job("build").UID] = []corev1.Pod{test.pod}

			if decision := s.after(20 * time.Second); decision.RequeueAfter != 10*time.Second {
				t.Errorf("want to look again in the 10 s that are left, got %s", decision.RequeueAfter)
			}
			s.after(10 * time.Second)
			s.collect()
			s.wantSteps("build: Failed, StartDeadlineExceeded", "cleanup: Running")
			if got := s.step("build").Message; got != test.want {
				t.Errorf("want %q, got %q", test.want, got)
			}
		})
	}
}

func TestTheStartDeadlineDoesNotMatterOnceAPodStarted(t *testing.T) {
	tests := map[string]func(*testEnv){
		"the Job counts a ready Pod": func(s *testEnv) { testbuilder.Job(s.job("build")).Active(s.now) },
		"a Pod runs but is not ready": func(s *testEnv) {
			testbuilder.Job(s.job("build")).PodPending(s.now)
			s.pods[s.job("build").UID] = []corev1.Pod{testbuilder.Pod("build").Running().Obj()}
		},
		"a queue has not admitted the Job yet": func(s *testEnv) {
			testbuilder.Job(s.job("build")).Suspended(s.now)
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StartDeadline(30)))
			happens(s)
			s.after(time.Hour)
			s.wantSteps("build: Running")
		})
	}
}

func TestAStartDeadlineIsToleratedAsOtherFailuresAre(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StartDeadline(30), testbuilder.ContinueOnFailure()).Step("test"))
	testbuilder.Job(s.job("build")).PodPending(s.now)
	s.after(time.Hour)
	s.collect()
	s.wantMade("build", "test")
}

func TestTimeToLive(t *testing.T) {
	tests := map[string]func(*testEnv){
		"after success": func(s *testEnv) { s.succeed("build") },
		"after failure": func(s *testEnv) { s.fail("build") },
	}
	for name, ends := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTL(100))
			ends(s)
			if decision := s.after(40 * time.Second); decision.DeleteExpired || decision.RequeueAfter != time.Minute {
				t.Errorf("want to look again in a minute, got %+v", decision)
			}
			if decision := s.after(time.Minute); !decision.DeleteExpired {
				t.Error("want it deleted")
			}
		})
	}
	t.Run("not while it runs", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTL(0))
		if decision := s.after(time.Hour); decision.DeleteExpired {
			t.Error("want it kept")
		}
	})
}
