package agenticsession

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

// The transitions in the state diagram of the package.
func TestPhaseTransitions(t *testing.T) {
	t.Run("Pending becomes Creating with a Job, Running with a runner, Completed, and Creating when rerun.id changes", func(t *testing.T) {
		s := newScenario(t).startAttempt()
		require.Equal(t, "fix-r1-a1", s.Session.Status.Attempt.JobName)
		s.wantPhase(v1alpha1.SessionCreating, v1alpha1.ReasonCreating)
		s.wantCondition(v1alpha1.ConditionRunnerStarted, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotStarted)
		s.wantEvent(v1alpha1.EventJobCreated)
		s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
		s.wantCondition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning)
		s.wantEvent(v1alpha1.EventRunning)
		s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
		s.wantCondition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonCompleted)
		s.wantEvent(v1alpha1.EventCompleted)
		require.True(t, s.findCondition(v1alpha1.ConditionPushed).Type == "", "a session without autoPush has the condition Pushed")
		s.updateSpec(requestNextRun).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
		require.Equal(t, "fix-r2-a1", s.Session.Status.Attempt.JobName)
		require.True(t, s.Session.Status.CompletionTime == nil, "completionTime is still set")
	})
	t.Run("Pending becomes Failed when the dry run is refused", func(t *testing.T) {
		s := newScenario(t)
		s.decideAndRecord()
		s.Refusal = &decision.Refusal{Class: decision.PolicyDenied, Kind: "Pod", Message: "violates PodSecurity"}
		require.True(t, s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPodRejected).CreateJob == nil, "the refused Job is created")
		s.wantEvent(v1alpha1.EventPodRejected)
	})
	t.Run("Pending becomes Failed when an object is missing for longer than startupTimeout", func(t *testing.T) {
		s := newScenario(t)
		s.Runner = nil
		require.Equal(t, 600*time.Second, s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRunnerNotFound).RequeueAfter)
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonRunnerNotFound)
		s.advanceClock(599*time.Second).wantPhase(v1alpha1.SessionPending, "")
		s.advanceClock(time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonRunnerNotFound)
	})
	t.Run("Pending waits for a quota without a limit", func(t *testing.T) {
		s := newScenario(t)
		s.decideAndRecord()
		for range 5 {
			s.Refusal = &decision.Refusal{Class: decision.QuotaExceeded, Kind: "Pod", Message: "exceeded quota"}
			s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQuotaExceeded)
		}
		s.startAttempt().wantPhase(v1alpha1.SessionCreating, "")
	})
	for class, reason := range map[decision.Class]string{
		decision.ServiceAccountMissing: v1alpha1.ReasonServiceAccountNotFound, decision.AlreadyExists: v1alpha1.ReasonNameTaken,
	} {
		t.Run("Pending waits with "+reason+" until startupTimeout, and tries again", func(t *testing.T) {
			s := newScenario(t)
			s.decideAndRecord()
			refusal := &decision.Refusal{Class: class, Kind: "Secret", Message: "refused"}
			s.Refusal = refusal
			d := s.wantPhase(v1alpha1.SessionPending, reason)
			require.True(t, d.CreateJob == nil && len(d.ApplyObjects) == 0, "the session creates objects after the refusal")
			if class == decision.AlreadyExists {
				s.wantEvent(v1alpha1.EventNameTaken)
			}
			require.True(t, s.advanceClock(time.Minute).wantPhase(v1alpha1.SessionPending, reason).CreateJob != nil, "the attempt is not tried again")
			s.Refusal = refusal
			s.advanceClock(600*time.Second).wantPhase(v1alpha1.SessionFailed, reason)
		})
	}
	t.Run("Creating becomes Completed when the runner exits at once", func(t *testing.T) {
		s := newScenario(t).startAttempt().exitRunner(0, "")
		s.wantPhase(v1alpha1.SessionCompleted, "")
		s.wantCondition(v1alpha1.ConditionRunnerStarted, metav1.ConditionTrue, v1alpha1.ReasonRunnerStarted)
	})
	for waiting, reason := range map[string]string{
		"ImagePullBackOff": v1alpha1.ReasonImagePull, "CreateContainerConfigError": v1alpha1.ReasonConfigError, "ContainerCreating": v1alpha1.ReasonConfigError,
	} {
		t.Run("Creating becomes Failed when "+waiting+" lasts longer than startupTimeout", func(t *testing.T) {
			s, before := newScenario(t).startAttempt().setWaitingReason(waiting), reason
			if waiting == "ContainerCreating" { // every container waits for a moment; here, the node cannot prepare the Pod
				s.blockPodStartup()
				before = v1alpha1.ReasonCreating
			}
			s.advanceClock(599*time.Second).wantPhase(v1alpha1.SessionCreating, before)
			d := s.advanceClock(time.Second).wantPhase(v1alpha1.SessionFailed, reason)
			require.True(t, len(d.DeleteJobs) == 1, "the Job is not deleted")
			s.markJobDeleted().updateSpec(requestNextRun).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonPreviousJobRunning)
			s.removeJobAndPod().startAttempt()
		})
	}
	t.Run("Creating waits for the pull of a large image", func(t *testing.T) {
		s := newScenario(t).startAttempt().blockPodStartup()
		s.newestPod().Status.Conditions[0].Status = corev1.ConditionTrue
		s.setWaitingReason("ContainerCreating").advanceClock(3*time.Hour).wantPhase(v1alpha1.SessionCreating, v1alpha1.ReasonCreating)
	})
	t.Run("Creating does not count the time that the Pod waits for a node", func(t *testing.T) {
		s := newScenario(t).startAttempt()
		s.advanceClock(3 * time.Hour).setWaitingReason("ErrImagePull")
		s.newestPod().Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.Now)}}
		s.advanceClock(599*time.Second).wantPhase(v1alpha1.SessionCreating, v1alpha1.ReasonImagePull)
		s.advanceClock(time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonImagePull)
	})
	t.Run("Creating waits without a limit with startupTimeout 0", func(t *testing.T) {
		s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.StartupTimeout = seconds(0) }).startAttempt().setWaitingReason("ErrImagePull")
		s.advanceClock(240*time.Hour).wantPhase(v1alpha1.SessionCreating, v1alpha1.ReasonImagePull)
	})
	t.Run("Stopping becomes Stopped with the result of a Pod that was already deleted", func(t *testing.T) {
		s := newRunningScenario(t)
		s.updateSpec(suspend).wantPhase(v1alpha1.SessionStopping, "")
		s.newestRunnerStatus().State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, Message: `{"costUSD": 0.2}`}}
		s.Jobs = nil // the controller remembers the deleted Pod
		s.wantPhase(v1alpha1.SessionStopped, "")
		run := s.Session.Status.Attempts[0]
		require.True(t, *run.CostUSD == "0.2" && *run.ExitCode == 143 && *s.Session.Status.TotalCostUSD == "0.2", "%+v", run)
	})
	t.Run("Running becomes Stopping with suspend, and Stopped when its Pod is deleted, which is not forced", func(t *testing.T) {
		s := newRunningScenario(t)
		require.True(t, len(s.updateSpec(suspend).wantPhase(v1alpha1.SessionStopping, "").DeleteJobs) == 1, "its Job is not deleted")
		s.wantEvent(v1alpha1.EventStopping)
		d := s.markJobDeleted().advanceClock(gracePeriod+stuckPodDelay-time.Second).wantPhase(v1alpha1.SessionStopping, "")
		require.True(t, len(d.DeleteJobs) == 0 && d.RequeueAfter == time.Second,
			"Jobs %v are deleted, requeued after %s, want none after 1s", d.DeleteJobs, d.RequeueAfter)
		s.advanceClock(time.Second).wantPhase(v1alpha1.SessionStopping, "")
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonGracePeriodExceeded)
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
		s.wantEvent(v1alpha1.EventStopped)
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked)
	})
	t.Run("Running becomes Stopping after inactivityTimeout, and stays Stopped", func(t *testing.T) {
		s := newScenario(t, setInteractive, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(60) })
		s.Runner.Spec.ActivityLease = true
		s.startAttempt().startRunner()
		s.wantPhase(v1alpha1.SessionRunning, "")
		s.advanceClock(time.Minute)
		s.Activity = &Activity{RenewTime: s.Now, ObservedTime: s.Now.Add(-30 * time.Second)}
		require.Equal(t, 30*time.Second, s.wantPhase(v1alpha1.SessionRunning, "").RequeueAfter)
		s.advanceClock(30*time.Second).wantPhase(v1alpha1.SessionStopping, "")
		s.wantEvent(v1alpha1.EventInactivityTimeout)
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
		s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionStopped, "")
		s.updateSpec(suspend).wantPhase(v1alpha1.SessionStopped, "")
		s.updateSpec(resume).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
	})
	t.Run("Running becomes Stopping when an interactive runner reports that its run is finished", func(t *testing.T) {
		s := newScenario(t, setInteractive, func(spec *v1alpha1.AgenticSessionSpec) { spec.StopOnRunFinished = true })
		s.Runner.Spec.ActivityLease = true
		s.startAttempt().startRunner()
		s.Activity = &Activity{FinishedJob: "fix-r1-a0"}
		s.wantPhase(v1alpha1.SessionRunning, "")
		s.Activity = &Activity{FinishedJob: "fix-r1-a1"}
		s.wantPhase(v1alpha1.SessionStopping, "")
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
		s.updateSpec(requestNextRun).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
		require.Equal(t, "fix-r2-a1", s.Session.Status.Attempt.JobName)
	})
	t.Run("a stop is completed before the session resumes", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.updateSpec(suspend).decideAndRecord()
		s.markJobDeleted().updateSpec(resume).wantPhase(v1alpha1.SessionStopping, "")
		s.removeJobAndPod().startAttempt().wantPhase(v1alpha1.SessionCreating, "")
		require.Equal(t, "fix-r1-a2", s.Session.Status.Attempt.JobName)
	})

	t.Run("a finished session is deleted after ttlSecondsAfterFinished", func(t *testing.T) {
		s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.TTLSecondsAfterFinished = new(int32(60)) }).startAttempt().exitRunner(0, "")
		d := s.decideAndRecord()
		require.True(t, !d.DeleteSession && d.RequeueAfter == time.Minute, "deleted: %t, requeued after %s, want 1m", d.DeleteSession, d.RequeueAfter)
		require.True(t, s.advanceClock(time.Minute).decideAndRecord().DeleteSession, "the session is not deleted")
	})
	t.Run("a stopped session is not deleted after ttlSecondsAfterFinished", func(t *testing.T) {
		s := newScenario(t, suspend, func(spec *v1alpha1.AgenticSessionSpec) { spec.TTLSecondsAfterFinished = new(int32(0)) })
		require.True(t, !s.advanceClock(time.Hour).decideAndRecord().DeleteSession, "the session is deleted")
	})
	t.Run("a session that is being deleted is not changed", func(t *testing.T) {
		s := newScenario(t)
		s.Session.DeletionTimestamp = new(metav1.NewTime(testStartTime))
		d := s.decideAndRecord()
		require.True(t, d.CreateJob == nil && len(d.ApplyObjects) == 0 && len(d.Events) == 0 && !d.ChangesStatus(s.Session), "%+v", d)
	})
}

// The ends that runnerEnds does not have.
func TestRunFailureReasons(t *testing.T) {
	for title, test := range map[string]struct {
		change func(s *scenario)
		phase  v1alpha1.SessionPhase
		reason string
		code   *int32
	}{
		"the deadline is exceeded and the runner exits with 0": {func(s *scenario) {
			s.exitRunner(0, "")
			s.newestJob().Status.Conditions[0] = batchv1.JobCondition{
				Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, LastTransitionTime: metav1.NewTime(s.Now),
			}
		}, v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded, new(int32(0))},
		"the Pod is evicted": {func(s *scenario) {
			s.newestPod().Status.Reason, s.newestPod().Status.ContainerStatuses = "Evicted", nil
			s.endJob(batchv1.JobFailed, "")
		}, v1alpha1.SessionFailed, v1alpha1.ReasonEvicted, nil},
		"the node is drained and the runner exits with 0": {func(s *scenario) {
			s.disrupt("EvictionByEvictionAPI").exitRunner(0, "")
			s.newestJob().Status.Conditions[0].Type = batchv1.JobFailed
		}, v1alpha1.SessionFailed, v1alpha1.ReasonEvicted, new(int32(0))},
		"the node is lost": {func(s *scenario) {
			s.disrupt("DeletionByTaintManager").endJob(batchv1.JobFailed, "")
		}, v1alpha1.SessionFailed, v1alpha1.ReasonPodLost, nil},
		"a user deletes the Pod, and its node does not answer": {func(s *scenario) {
			s.deletePod()
			s.endJob(batchv1.JobFailed, "")
		}, v1alpha1.SessionFailed, v1alpha1.ReasonPodDeleted, nil},
		"a user deletes the Pod after its runner failed": {func(s *scenario) {
			s.exitRunner(7, "")
			s.advanceClock(time.Second)
			s.deletePod()
		}, v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError, new(int32(7))},
		"a sidecar fails after the runner succeeded": {func(s *scenario) {
			s.exitRunner(0, "")
			s.newestJob().Status.Conditions[0].Type = batchv1.JobFailed
			s.newestPod().Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
			}}
		}, v1alpha1.SessionCompleted, v1alpha1.ReasonCompleted, new(int32(0))},
		"the Job counts a failure but has not ended": {
			func(s *scenario) { s.newestJob().Status.Failed = 1 }, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil,
		},
		"the Job will fail but its Pod still runs": {
			func(s *scenario) { s.endJob(batchv1.JobFailureTarget, "") }, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil,
		},
		"a Pod of an earlier Job with the same name failed": {func(s *scenario) {
			other := s.newestPod().DeepCopy()
			other.CreationTimestamp = metav1.NewTime(s.Now.Add(time.Hour))
			other.OwnerReferences[0].UID = "older"
			other.Status.Reason = "Evicted"
			s.Pods = append(s.Pods, *other)
		}, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil},
	} {
		t.Run(title, func(t *testing.T) {
			s := newRunningScenario(t)
			s.advanceClock(time.Minute)
			test.change(s)
			s.wantPhase(test.phase, test.reason)
			if len(s.Session.Status.Attempts) == 0 {
				return
			}
			require.Equal(t, test.code, s.Session.Status.Attempts[0].ExitCode)
		})
	}
}

func TestRaceOfStopAndOutcome(t *testing.T) {
	t.Run("an outcome before the stop wins", func(t *testing.T) {
		s := newRunningScenario(t)
		s.advanceClock(time.Minute).exitRunner(0, "").updateSpec(suspend).wantPhase(v1alpha1.SessionCompleted, "")
	})
	t.Run("an outcome before the deletion of the Job wins over a recorded stop", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.advanceClock(time.Minute).updateSpec(suspend).decideAndRecord()
		s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "") // the deletion failed, because the Job had changed
	})
	for _, delay := range []time.Duration{0, 3 * time.Second} {
		t.Run("a stop wins over the exit code of a runner that ends "+delay.String()+" later, and its result is kept", func(t *testing.T) {
			s := newScenario(t).startAttempt().startRunner()
			s.updateSpec(suspend).decideAndRecord()
			s.markJobDeleted().advanceClock(delay).exitRunner(143, `{"costUSD": 0.5, "sdkSessionId": "abc"}`).wantPhase(v1alpha1.SessionStopping, "")
			s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
			cost := s.Session.Status.Attempts[0].CostUSD
			require.True(t, cost != nil && *cost == "0.5", "cost %v, want 0.5", cost)
			require.Equal(t, "abc", s.updateSpec(resume).startAttempt().runnerVariable("AGENTIC_SDK_SESSION_ID"))
		})
	}
}

func TestInteractiveSessionRunsAndServesWhenItsRunnerIsReady(t *testing.T) {
	s := newScenario(t, setInteractive).startAttempt().startRunner()
	s.newestRunnerStatus().Ready = false
	s.wantPhase(v1alpha1.SessionCreating, "")
	s.wantCondition(v1alpha1.ConditionServing, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotReady)
	s.newestRunnerStatus().Ready = true
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionServing, metav1.ConditionTrue, v1alpha1.ReasonRunnerReady)
	s.newestRunnerStatus().Ready = false
	s.wantPhase(v1alpha1.SessionRunning, v1alpha1.ReasonRunning)
	s.wantCondition(v1alpha1.ConditionServing, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotReady)
}

// runnerEnds are the ends of a runner that started.
var runnerEnds = map[string]struct {
	end    func(s *scenario, message string)
	reason string
}{
	"is evicted": {func(s *scenario, message string) { s.disrupt("EvictionByEvictionAPI").exitRunner(143, message) }, v1alpha1.ReasonEvicted},
	"is killed for its memory": {func(s *scenario, message string) {
		s.exitRunner(137, message).newestRunnerStatus().State.Terminated.Reason = v1alpha1.ReasonOOMKilled
	}, v1alpha1.ReasonOOMKilled},
	"exceeds its deadline": {func(s *scenario, message string) {
		s.exitRunner(143, message).newestJob().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
	}, v1alpha1.ReasonDeadlineExceeded},
	"is deleted": {func(s *scenario, message string) {
		s.deletePod()
		s.exitRunner(143, message)
	}, v1alpha1.ReasonPodDeleted},
	"fails":     {func(s *scenario, message string) { s.exitRunner(7, message) }, v1alpha1.ReasonExitedWithError},
	"completes": {func(s *scenario, message string) { s.exitRunner(0, message) }, v1alpha1.ReasonCompleted},
}

// The cache may show the end of a Job before that of its Pod, and before the handler of deletions has remembered its Pod.
func TestTheEndOfAPodCountsIfItArrivesSoonAfterTheEndOfItsJob(t *testing.T) {
	for runner, e := range runnerEnds {
		for _, delay := range []time.Duration{0, time.Second, maxPodLag - time.Second, maxPodLag, time.Hour} {
			for _, isDeleted := range []bool{true, false} {
				t.Run(fmt.Sprintf("the runner %s, its Pod ends after %s, deleted %v", runner, delay, isDeleted), func(t *testing.T) {
					s := newRunningScenario(t)
					before := *s.newestPod().DeepCopy()
					e.end(s, "")
					pods := s.Pods
					want, wantExitCode := e.reason, true
					if delay > 0 {
						if s.Pods = nil; !isDeleted {
							s.Pods = []corev1.Pod{before}
						}
						after := s.wantPhase(v1alpha1.SessionRunning, "").RequeueAfter
						require.True(t, after > 0 && after <= maxPodLag, "decides again after %s", after)
						s.advanceClock(delay)
					}
					if delay < maxPodLag {
						if s.Pods = pods; isDeleted {
							s.DeletedPod = pods[0].UID
						}
					} else if wantExitCode = false; want != v1alpha1.ReasonCompleted && want != v1alpha1.ReasonDeadlineExceeded { // the Job says the others
						want = v1alpha1.ReasonPodLost
					}
					s.decideAndRecord()
					attempts := s.Session.Status.Attempts
					require.True(t, len(attempts) == 1 && attempts[0].Reason == want && (attempts[0].ExitCode != nil) == wantExitCode,
						"%+v, want %s", attempts, want)
				})
			}
		}
	}
}

// Whatever ends a runner, the message carries what the agent or git said last.
func TestAFailureCarriesTheLastMessageOfTheRunner(t *testing.T) {
	for runner, e := range runnerEnds {
		for _, message := range []string{"", "cloning shop: no space left", `{"summary": "cloning shop: no space left"}`} {
			t.Run(fmt.Sprintf("the runner %s after %q", runner, message), func(t *testing.T) {
				s := newRunningScenario(t)
				e.end(s, message)
				s.decideAndRecord()
				attempt, condition := s.Session.Status.Attempts[0], s.findCondition(v1alpha1.ConditionSucceeded)
				wants := message != "" && e.reason != v1alpha1.ReasonCompleted
				for _, got := range []string{attempt.Message, condition.Message} {
					require.True(t, attempt.Reason == e.reason && strings.HasSuffix(got, ": cloning shop: no space left") == wants,
						"%s: %q", attempt.Reason, got)
				}
			})
		}
	}
}

// Only the time of the runner counts: its sidecars push and archive after it.
func TestTimeCountsUntilTheEndOfTheRunner(t *testing.T) {
	for title, test := range map[string]struct {
		finished, want time.Duration
	}{"before its Job": {40 * time.Second, 40 * time.Second}, "after its Job, on a wrong clock": {time.Hour, 100 * time.Second}, "at no time that is known": {0, 100 * time.Second}} {
		t.Run(title, func(t *testing.T) {
			s := newRunningScenario(t)
			s.advanceClock(100*time.Second).exitRunner(0, "")
			finished := &s.newestRunnerStatus().State.Terminated.FinishedAt
			if *finished = (metav1.Time{}); test.finished != 0 {
				*finished = metav1.NewTime(testStartTime.Add(test.finished))
			}
			s.wantPhase(v1alpha1.SessionCompleted, "")
			s.wantActiveSeconds(test.want.Seconds())
		})
	}
}

// A Pod may have run while no operator did. Its cost is then what it could be, and not zero.
func TestAnAttemptThatNobodySawStartCostsTheRestOfTheBudget(t *testing.T) {
	for title, test := range map[string]struct {
		prepare func(*scenario)
		want    v1alpha1.Number
	}{
		"its Job is deleted": {func(*scenario) {}, "3"},
		"it stops now":       {func(s *scenario) { s.updateSpec(suspend).decideAndRecord() }, "unknown"}, // its Pod would be remembered
		"it has stopped for an hour": {func(s *scenario) {
			s.updateSpec(suspend).decideAndRecord()
			s.advanceClock(time.Hour)
		}, "3"},
		"it was never created": {func(s *scenario) {
			s.Session.Status.Attempt.JobUID = ""
			s.Jobs = nil
			s.updateSpec(suspend)
		}, "unknown"},
	} {
		t.Run(title, func(t *testing.T) {
			s := setModel(newScenario(t, withMaxCost("3"))).startAttempt()
			s.newestJob().Status.StartTime, s.Pods = nil, nil
			s.decideAndRecord()
			test.prepare(s)
			s.Jobs = nil
			s.decideAndRecord()
			s.wantTotalCost(test.want)
		})
	}
}

// The cost of an attempt counts once, also if the next run, which starts in the same decision, has no budget.
func TestTheCostOfARunBeforeARefusedRunCountsOnce(t *testing.T) {
	s := newRunningScenario(t, withMaxCost("1"))
	s.exitRunner(0, `{"costUSD": 2}`).updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
	s.wantTotalCost("2")
}
