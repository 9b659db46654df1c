package agenticsession

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// The transitions in the state diagram of the package.
func TestPhaseTransitions(t *testing.T) {
	t.Run("a new session is Pending", func(t *testing.T) {
		s := newScenario(t)
		d := s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWaiting)
		if d.CreateJob == nil || d.CreateJob.Name != "fix-r1-a1" {
			t.Errorf("Job %v, want fix-r1-a1", d.CreateJob)
		}
	})
	t.Run("Pending becomes Creating when its Job exists", func(t *testing.T) {
		s := newScenario(t).startAttempt()
		s.wantPhase(v1alpha1.SessionCreating, v1alpha1.ReasonCreating)
		s.wantCondition(v1alpha1.ConditionRunnerStarted, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotStarted)
		s.wantEvent(v1alpha1.EventJobCreated)
	})
	t.Run("Pending becomes Stopped with suspend", func(t *testing.T) {
		s := newScenario(t, suspend)
		if d := s.wantPhase(v1alpha1.SessionStopped, ""); d.CreateJob != nil {
			t.Error("a Job is created")
		}
	})
	t.Run("Pending becomes Stopped before its Job is created", func(t *testing.T) {
		s := newScenario(t)
		s.decideAndRecord()
		s.updateSpec(suspend).wantPhase(v1alpha1.SessionStopped, "")
	})
	t.Run("Pending becomes Failed when the dry run is refused", func(t *testing.T) {
		s := newScenario(t)
		s.decideAndRecord()
		s.Refusal = &decision.Refusal{Class: decision.PolicyDenied, Kind: "Pod", Message: "violates PodSecurity"}
		if d := s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPodRejected); d.CreateJob != nil {
			t.Error("the refused Job is created")
		}
		s.wantEvent(v1alpha1.EventPodRejected)
	})
	t.Run("Pending becomes Failed when an object is missing for longer than startupTimeout", func(t *testing.T) {
		s := newScenario(t)
		s.Runner = nil
		if d := s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRunnerNotFound); d.RequeueAfter != 600*time.Second {
			t.Errorf("requeued after %s, want 10m", d.RequeueAfter)
		}
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonRunnerNotFound)
		s.advanceClock(599*time.Second).wantPhase(v1alpha1.SessionPending, "")
		s.advanceClock(time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonRunnerNotFound)
	})
	t.Run("Pending continues when the missing object is created", func(t *testing.T) {
		s := newScenario(t)
		s.Runner = nil
		s.decideAndRecord()
		s.Runner = newTestRunner()
		s.advanceClock(time.Minute).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked)
	})
	t.Run("Pending waits for a quota without a limit", func(t *testing.T) {
		s := newScenario(t)
		s.decideAndRecord()
		for range 5 {
			s.Refusal = &decision.Refusal{Class: decision.QuotaExceeded, Kind: "Pod", Message: "exceeded quota"}
			s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQuotaExceeded)
			s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonQuotaExceeded)
		}
		s.startAttempt().wantPhase(v1alpha1.SessionCreating, "")
	})
	t.Run("Pending waits for a ServiceAccount until startupTimeout", func(t *testing.T) {
		s := newScenario(t)
		s.decideAndRecord()
		s.Refusal = &decision.Refusal{Class: decision.ServiceAccountMissing, Kind: "Pod", Message: "not found"}
		s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonServiceAccountNotFound)
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonServiceAccountNotFound)
		s.Refusal = nil
		s.advanceClock(time.Minute).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonServiceAccountNotFound) // it is tried again
		s.Refusal = &decision.Refusal{Class: decision.ServiceAccountMissing, Kind: "Pod", Message: "not found"}
		s.advanceClock(600*time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonServiceAccountNotFound)
	})
	t.Run("Creating becomes Running when the runner's container has started", func(t *testing.T) {
		s := newScenario(t).startAttempt()
		s.decideAndRecord()
		s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
		s.wantEvent(v1alpha1.EventRunning)
	})
	t.Run("Creating becomes Running when an interactive runner is ready", func(t *testing.T) {
		s := newScenario(t, setInteractive).startAttempt().startRunner()
		s.newestRunnerStatus().Ready = false
		s.wantPhase(v1alpha1.SessionCreating, "")
		s.newestRunnerStatus().Ready = true
		s.wantPhase(v1alpha1.SessionRunning, "")
		s.newestRunnerStatus().Ready = false
		s.wantPhase(v1alpha1.SessionRunning, "")
	})
	t.Run("Creating becomes Completed when the runner exits at once", func(t *testing.T) {
		s := newScenario(t).startAttempt()
		s.decideAndRecord()
		s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
		s.wantCondition(v1alpha1.ConditionRunnerStarted, metav1.ConditionTrue, v1alpha1.ReasonRunnerStarted)
		s.wantEvent(v1alpha1.EventCompleted)
	})
	t.Run("Creating becomes Failed when the runner fails at once", func(t *testing.T) {
		s := newScenario(t).startAttempt()
		s.decideAndRecord()
		s.exitRunner(3, "").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
	})
	for waiting, reason := range map[string]string{
		"ImagePullBackOff": v1alpha1.ReasonImagePull, "CreateContainerConfigError": v1alpha1.ReasonConfigError,
	} {
		t.Run("Creating becomes Failed when "+waiting+" lasts longer than startupTimeout", func(t *testing.T) {
			s := newScenario(t).startAttempt().setWaitingReason(waiting)
			s.advanceClock(599*time.Second).wantPhase(v1alpha1.SessionCreating, reason)
			d := s.advanceClock(time.Second).wantPhase(v1alpha1.SessionFailed, reason)
			if len(d.DeleteJobs) != 1 {
				t.Error("the Job is not deleted")
			}
		})
	}
	t.Run("Creating becomes Failed when the node cannot prepare the Pod for longer than startupTimeout", func(t *testing.T) {
		s := newScenario(t).startAttempt().blockPodStartup()
		s.advanceClock(599*time.Second).wantPhase(v1alpha1.SessionCreating, v1alpha1.ReasonCreating)
		d := s.advanceClock(time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonConfigError)
		if len(d.DeleteJobs) != 1 {
			t.Error("the Job is not deleted")
		}
	})
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
	t.Run("Running becomes Pending when a retry is left", func(t *testing.T) {
		s := newScenario(t, withRetryLimit(1)).startAttempt().startRunner()
		s.decideAndRecord()
		s.exitRunner(1, "").wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
		s.wantEvent(v1alpha1.EventRetrying)
		s.advanceClock(10*time.Second).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
		if name := s.Session.Status.Attempt.JobName; name != "fix-r1-a2" {
			t.Errorf("Job %s, want fix-r1-a2", name)
		}
		s.exitRunner(1, "").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
	})
	t.Run("A retry waits for retry.backoff", func(t *testing.T) {
		s := newScenario(t, withRetryLimit(2), func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Retry.Backoff, spec.Retry.Factor = seconds(60), new(v1alpha1.Number("3"))
		})
		for _, delay := range []time.Duration{time.Minute, 3 * time.Minute} {
			s.startAttempt().exitRunner(1, "").decideAndRecord()
			s.advanceClock(delay-time.Second).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
			s.advanceClock(time.Second)
		}
		s.startAttempt().wantPhase(v1alpha1.SessionCreating, "")
	})
	t.Run("Creating becomes Pending after a disruption with onDisruption", func(t *testing.T) {
		s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Retry = &v1alpha1.SessionRetry{OnDisruption: true} }).startAttempt()
		s.newestPod().Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"}}
		s.endJob(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
		if s.Session.Status.Retries != 0 {
			t.Error("a disruption counts for limit")
		}
	})
	t.Run("Stopping becomes Stopped with the result of a Pod that was already deleted", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.decideAndRecord()
		s.updateSpec(suspend).wantPhase(v1alpha1.SessionStopping, "")
		s.newestRunnerStatus().State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, Message: `{"costUSD": 0.2}`}}
		s.Jobs = nil // the controller remembers the deleted Pod
		s.wantPhase(v1alpha1.SessionStopped, "")
		run := s.Session.Status.Attempts[0]
		if run.CostUSD == nil || *run.CostUSD != "0.2" || run.ExitCode == nil || *run.ExitCode != 143 || *s.Session.Status.TotalCostUSD != "0.2" {
			t.Errorf("%+v", run)
		}
	})
	t.Run("Running becomes Stopping with suspend, and Stopped when its Pod is deleted", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.decideAndRecord()
		if d := s.updateSpec(suspend).wantPhase(v1alpha1.SessionStopping, ""); len(d.DeleteJobs) != 1 {
			t.Error("its Job is not deleted")
		}
		s.wantEvent(v1alpha1.EventStopping)
		if d := s.markJobDeleted().advanceClock(gracePeriod).wantPhase(v1alpha1.SessionStopping, ""); len(d.DeleteJobs) != 0 {
			t.Error("its Job is deleted again")
		}
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
		s.wantEvent(v1alpha1.EventStopped)
	})
	t.Run("Running becomes Stopping after inactivityTimeout, and stays Stopped", func(t *testing.T) {
		s := newScenario(t, setInteractive, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(60) })
		s.Runner.Spec.ActivityLease = true
		s.startAttempt().startRunner()
		s.wantPhase(v1alpha1.SessionRunning, "")
		s.advanceClock(time.Minute)
		s.Activity = &Activity{RenewTime: s.Now, ObservedTime: s.Now.Add(-30 * time.Second)}
		if d := s.wantPhase(v1alpha1.SessionRunning, ""); d.RequeueAfter != 30*time.Second {
			t.Errorf("requeued after %s, want 30s", d.RequeueAfter)
		}
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
		if name := s.Session.Status.Attempt.JobName; name != "fix-r2-a1" {
			t.Errorf("Job %s, want fix-r2-a1", name)
		}
	})
	t.Run("Stopping reports a stuck Pod and does not force its deletion", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.updateSpec(suspend).decideAndRecord()
		d := s.markJobDeleted().advanceClock(gracePeriod+stuckPodDelay-time.Second).wantPhase(v1alpha1.SessionStopping, "")
		if d.RequeueAfter != time.Second {
			t.Errorf("requeued after %s, want 1s", d.RequeueAfter)
		}
		s.advanceClock(time.Second).wantPhase(v1alpha1.SessionStopping, "")
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonGracePeriodExceeded)
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked)
	})
	t.Run("Stopped becomes Pending without suspend, with a new Job", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.updateSpec(suspend).decideAndRecord()
		s.removeJobAndPod().decideAndRecord()
		s.updateSpec(resume).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
		if name := s.Session.Status.Attempt.JobName; name != "fix-r1-a2" {
			t.Errorf("Job %s, want fix-r1-a2", name)
		}
	})
	t.Run("a stop is completed before the session resumes", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.updateSpec(suspend).decideAndRecord()
		s.markJobDeleted().updateSpec(resume).wantPhase(v1alpha1.SessionStopping, "")
		s.removeJobAndPod().startAttempt().wantPhase(v1alpha1.SessionCreating, "")
	})
	for _, code := range []int32{0, 1} {
		t.Run("a finished session becomes Pending when rerun.id changes", func(t *testing.T) {
			s := newScenario(t).startAttempt().startRunner().exitRunner(code, "")
			s.decideAndRecord()
			s.advanceClock(time.Hour).updateSpec(requestNextRun).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
			if name := s.Session.Status.Attempt.JobName; name != "fix-r2-a1" {
				t.Errorf("Job %s, want fix-r2-a1", name)
			}
			if s.Session.Status.CompletionTime != nil {
				t.Error("completionTime is still set")
			}
		})
	}
	t.Run("a finished session is deleted after ttlSecondsAfterFinished", func(t *testing.T) {
		s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.TTLSecondsAfterFinished = new(int32(60)) }).startAttempt().exitRunner(0, "")
		if d := s.decideAndRecord(); d.DeleteSession || d.RequeueAfter != time.Minute {
			t.Errorf("deleted: %t, requeued after %s, want 1m", d.DeleteSession, d.RequeueAfter)
		}
		if d := s.advanceClock(time.Minute).decideAndRecord(); !d.DeleteSession {
			t.Error("the session is not deleted")
		}
	})
	t.Run("a stopped session is not deleted after ttlSecondsAfterFinished", func(t *testing.T) {
		s := newScenario(t, suspend, func(spec *v1alpha1.AgenticSessionSpec) { spec.TTLSecondsAfterFinished = new(int32(0)) })
		if d := s.advanceClock(time.Hour).decideAndRecord(); d.DeleteSession {
			t.Error("the session is deleted")
		}
	})
	t.Run("a session that is being deleted is not changed", func(t *testing.T) {
		s := newScenario(t)
		s.Session.DeletionTimestamp = new(metav1.NewTime(testStartTime))
		if d := s.decideAndRecord(); d.CreateJob != nil || len(d.ApplyObjects) > 0 || len(d.Events) > 0 || d.ChangesStatus(s.Session) {
			t.Errorf("%+v", d)
		}
	})
}

func TestRunFailureReasons(t *testing.T) {
	tests := map[string]struct {
		change func(s *scenario)
		phase  v1alpha1.SessionPhase
		reason string
		code   *int32
	}{
		"the runner exits with an error": {
			func(s *scenario) { s.exitRunner(7, "") }, v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError, new(int32(7)),
		},
		"the runner exceeds its memory limit": {
			func(s *scenario) {
				s.exitRunner(137, "")
				s.newestRunnerStatus().State.Terminated.Reason = "OOMKilled"
			}, v1alpha1.SessionFailed, v1alpha1.ReasonOOMKilled, new(int32(137)),
		},
		"the deadline is exceeded": {
			func(s *scenario) {
				s.exitRunner(143, "")
				s.newestJob().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
			}, v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded, new(int32(143)),
		},
		"the deadline is exceeded and the runner exits with 0": {
			func(s *scenario) {
				s.exitRunner(0, "")
				s.newestJob().Status.Conditions[0] = batchv1.JobCondition{
					Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, LastTransitionTime: metav1.NewTime(s.Now),
				}
			}, v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded, new(int32(0)),
		},
		"the Pod is evicted": {
			func(s *scenario) {
				s.newestPod().Status.Reason, s.newestPod().Status.ContainerStatuses = "Evicted", nil
				s.endJob(batchv1.JobFailed, "")
			}, v1alpha1.SessionFailed, v1alpha1.ReasonEvicted, nil,
		},
		"the node is drained and the runner exits with 0": {
			func(s *scenario) {
				s.newestPod().Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
				s.exitRunner(0, "")
				s.newestJob().Status.Conditions[0].Type = batchv1.JobFailed
			}, v1alpha1.SessionFailed, v1alpha1.ReasonEvicted, new(int32(0)),
		},
		"the node is lost": {
			func(s *scenario) {
				s.newestPod().Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"}}
				s.endJob(batchv1.JobFailed, "")
			}, v1alpha1.SessionFailed, v1alpha1.ReasonPodLost, nil,
		},
		"a user deletes the Pod, and its runner is terminated": {
			func(s *scenario) {
				s.exitRunner(143, "")
				s.deletePod()
			}, v1alpha1.SessionFailed, v1alpha1.ReasonPodDeleted, new(int32(143)),
		},
		"a user deletes the Pod, and its node does not answer": {
			func(s *scenario) {
				s.deletePod()
				s.endJob(batchv1.JobFailed, "")
			}, v1alpha1.SessionFailed, v1alpha1.ReasonPodDeleted, nil,
		},
		"a user deletes the Pod after its runner failed": {
			func(s *scenario) {
				s.exitRunner(7, "")
				s.advanceClock(time.Second)
				s.deletePod()
			}, v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError, new(int32(7)),
		},
		"the Pod is lost": {
			func(s *scenario) {
				s.endJob(batchv1.JobFailed, "")
				s.Pods = nil
				s.advanceClock(maxPodLag)
			}, v1alpha1.SessionFailed, v1alpha1.ReasonPodLost, nil,
		},
		"a user deletes the Job": {
			func(s *scenario) { s.removeJobAndPod() }, v1alpha1.SessionFailed, v1alpha1.ReasonPodLost, nil,
		},
		"a sidecar fails after the runner succeeded": {
			func(s *scenario) {
				s.exitRunner(0, "")
				s.newestJob().Status.Conditions[0].Type = batchv1.JobFailed
				s.newestPod().Status.InitContainerStatuses = []corev1.ContainerStatus{{
					Name: "proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
				}}
			}, v1alpha1.SessionCompleted, v1alpha1.ReasonCompleted, new(int32(0)),
		},
		"the Job counts a failure but has not ended": {
			func(s *scenario) { s.newestJob().Status.Failed = 1 }, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil,
		},
		"the Job will fail but its Pod still runs": {
			func(s *scenario) { s.endJob(batchv1.JobFailureTarget, "") }, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil,
		},
		"a Pod of an earlier Job with the same name failed": {
			func(s *scenario) {
				other := s.newestPod().DeepCopy()
				other.CreationTimestamp = metav1.NewTime(s.Now.Add(time.Hour))
				other.OwnerReferences[0].UID = "older"
				other.Status.Reason = "Evicted"
				s.Pods = append(s.Pods, *other)
			}, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t).startAttempt().startRunner()
			s.decideAndRecord()
			s.advanceClock(time.Minute)
			test.change(s)
			s.wantPhase(test.phase, test.reason)
			if len(s.Session.Status.Attempts) == 0 {
				return
			}
			got := s.Session.Status.Attempts[0].ExitCode
			if (got == nil) != (test.code == nil) || got != nil && *got != *test.code {
				t.Errorf("exit code %v, want %v", got, test.code)
			}
		})
	}
}

func TestRaceOfStopAndOutcome(t *testing.T) {
	t.Run("an outcome before the stop wins", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.decideAndRecord()
		s.advanceClock(time.Minute).exitRunner(0, "").updateSpec(suspend).wantPhase(v1alpha1.SessionCompleted, "")
	})
	t.Run("an outcome before the deletion of the Job wins over a recorded stop", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.advanceClock(time.Minute).updateSpec(suspend).decideAndRecord()
		s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "") // the deletion failed, because the Job had changed
	})
	t.Run("a stop wins over the exit code of the terminated runner", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.updateSpec(suspend).decideAndRecord()
		s.markJobDeleted().advanceClock(3*time.Second).exitRunner(143, "").wantPhase(v1alpha1.SessionStopping, "")
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
	})
	t.Run("a runner that fails in the second of its termination was stopped", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.updateSpec(suspend).decideAndRecord()
		s.markJobDeleted().exitRunner(143, "").wantPhase(v1alpha1.SessionStopping, "")
	})
	t.Run("the result of a stopped runner is kept", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.updateSpec(suspend).decideAndRecord()
		s.markJobDeleted().advanceClock(3*time.Second).exitRunner(143, `{"costUSD": 0.5, "sdkSessionId": "abc"}`).decideAndRecord()
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
		if cost := s.Session.Status.Attempts[0].CostUSD; cost == nil || *cost != "0.5" {
			t.Errorf("cost %v, want 0.5", cost)
		}
		s.createPlannedJob(s.updateSpec(resume).decideAndRecord())
		for _, variable := range s.newestJob().Spec.Template.Spec.Containers[0].Env {
			if variable.Name == "AGENTIC_SDK_SESSION_ID" && variable.Value == "abc" {
				return
			}
		}
		t.Error("the next runner does not get the sdkSessionId")
	})
}

// kubectl wait can wait for either outcome of a session.
func TestConditionsOfEachOutcome(t *testing.T) {
	s := newScenario(t).startAttempt().startRunner()
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning)
	s.exitRunner(0, "")
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonCompleted)
	s.wantCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonCompleted)

	s = newScenario(t).startAttempt().startRunner()
	s.exitRunner(3, "")
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonExitedWithError)
	s.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonExitedWithError)
	s.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonExitedWithError)
}

func TestInteractiveSessionServesWhileItsRunnerIsReady(t *testing.T) {
	s := newScenario(t, setInteractive).startAttempt()
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionServing, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotReady)
	s.startRunner()
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionServing, metav1.ConditionTrue, v1alpha1.ReasonRunnerReady)
	s.newestRunnerStatus().Ready = false
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionServing, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotReady)
	s.wantCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning)
}

// The operator receives Jobs and Pods separately.
func TestRunIsRecordedWhenTheEndsOfItsJobAndPodAreObserved(t *testing.T) {
	s := newScenario(t).startAttempt().startRunner()
	s.wantPhase(v1alpha1.SessionRunning, v1alpha1.ReasonRunning)
	earlier := s.newestPod().DeepCopy()
	s.exitRunner(3, "")
	ended := s.Pods[0]
	s.Pods[0] = *earlier
	decision := s.wantPhase(v1alpha1.SessionRunning, v1alpha1.ReasonRunning)
	if decision.RequeueAfter != maxPodLag {
		t.Errorf("the session is reconciled again after %s, want %s", decision.RequeueAfter, maxPodLag)
	}
	s.Pods[0] = ended
	s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)

	s = newScenario(t).startAttempt().startRunner()
	earlier = s.newestPod().DeepCopy()
	s.exitRunner(3, "").Pods[0] = *earlier
	s.decideAndRecord()
	s.advanceClock(maxPodLag).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPodLost) // nothing shows how the runner ended
}
