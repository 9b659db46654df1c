package agenticsession

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
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
		require.True(t, len(s.reconcile().eventReasons) == 0, "events %v, although nothing happened", s.eventReasons)
		require.Equal(t, "Attempt 1 of run 1 completed", s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "").Events[0].Message)
		s.wantCondition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonCompleted)
		s.wantEvent(v1alpha1.EventCompleted)
		require.True(t, s.findCondition(v1alpha1.ConditionPushed).Type == "", "a session without autoPush has the condition Pushed")
		require.True(t, len(s.reconcile().eventReasons) == 0, "events %v after the end", s.eventReasons)
		s.updateSpec(requestNextRun).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
		require.Equal(t, "fix-r2-a1", s.Session.Status.Attempt.JobName)
		require.True(t, s.Session.Status.CompletionTime == nil, "completionTime is still set")
		s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "") // at once
		s.wantCondition(v1alpha1.ConditionRunnerStarted, metav1.ConditionTrue, v1alpha1.ReasonRunnerStarted)
	})
	t.Run("Pending becomes Failed when the dry run is refused", func(t *testing.T) {
		s := newScenario(t).reconcile().refuse(decision.PolicyDenied)
		require.True(t, s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPodRejected).CreateJob == nil, "the refused Job is created")
		s.wantEvent(v1alpha1.EventPodRejected)
	})
	t.Run("Pending becomes Failed when an object is missing for longer than startupTimeout", func(t *testing.T) {
		s := newScenario(t)
		s.Runner = nil
		require.Equal(t, 600*time.Second, s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRunnerNotFound).RequeueAfter)
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonRunnerNotFound)
		s.wantCondition(v1alpha1.ConditionRunnerStarted, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotFound)
		s.advanceClock(599*time.Second).wantPhase(v1alpha1.SessionPending, "")
		s.advanceClock(time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonRunnerNotFound)
	})
	t.Run("Pending waits for a quota without a limit", func(t *testing.T) {
		s := newScenario(t).reconcile()
		for range 5 {
			s.refuse(decision.QuotaExceeded).advanceClock(time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQuotaExceeded)
		}
		s.startAttempt().wantPhase(v1alpha1.SessionCreating, "")
	})
	for class, reason := range map[decision.Class]string{
		decision.ServiceAccountMissing: v1alpha1.ReasonServiceAccountNotFound, decision.AlreadyExists: v1alpha1.ReasonNameTaken,
	} {
		t.Run("Pending waits with "+reason+" until startupTimeout, and tries again", func(t *testing.T) {
			s := newScenario(t).reconcile().refuse(class)
			d := s.wantPhase(v1alpha1.SessionPending, reason)
			require.True(t, d.CreateJob == nil && len(d.ApplyObjects) == 0, "the session creates objects after the refusal")
			if class == decision.AlreadyExists {
				s.wantEvent(v1alpha1.EventNameTaken)
			}
			require.True(t, s.advanceClock(time.Minute).wantPhase(v1alpha1.SessionPending, reason).CreateJob != nil, "the attempt is not tried again")
			s.refuse(class).advanceClock(600*time.Second).wantPhase(v1alpha1.SessionFailed, reason)
		})
	}
	check := func(title string, prepare func(s *scenario), before, failure string) { // failure is empty if it waits without a limit
		t.Run("Creating "+title, func(t *testing.T) {
			s := newScenario(t).startAttempt()
			prepare(s)
			s.advanceClock(599*time.Second).wantPhase(v1alpha1.SessionCreating, before)
			if failure == "" {
				s.advanceClock(240*time.Hour).wantPhase(v1alpha1.SessionCreating, before)
				return
			}
			d := s.advanceClock(time.Second).wantPhase(v1alpha1.SessionFailed, failure)
			require.True(t, len(d.DeleteJobs) == 1, "the Job is not deleted")
			s.markJobDeleted().updateSpec(requestNextRun).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonPreviousJobRunning)
			s.removeJobAndPod().startAttempt()
		})
	}
	for waiting, reason := range map[string]string{"ImagePullBackOff": v1alpha1.ReasonImagePull, "CreateContainerConfigError": v1alpha1.ReasonConfigError} {
		check("becomes Failed when "+waiting+" lasts longer than startupTimeout", func(s *scenario) { s.setWaitingReason(waiting) }, reason, reason)
	}
	check("becomes Failed when its node cannot prepare the Pod", func(s *scenario) { s.blockPodStartup() }, v1alpha1.ReasonCreating, v1alpha1.ReasonConfigError)
	for title, state := range map[string]corev1.ContainerState{
		"started": {Running: &corev1.ContainerStateRunning{}}, "ended": {Terminated: &corev1.ContainerStateTerminated{}},
	} {
		check("does not become Failed after a container of its Pod "+title, func(s *scenario) {
			s.blockPodStartup().newestPod().Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: state}}
		}, v1alpha1.ReasonCreating, "")
	}
	check("waits for the pull of a large image", func(s *scenario) {
		s.blockPodStartup().newestPod().Status.Conditions[0].Status = corev1.ConditionTrue
	}, v1alpha1.ReasonCreating, "")
	check("does not count the time that the Pod waits for a node", func(s *scenario) {
		s.advanceClock(3 * time.Hour).setWaitingReason("ErrImagePull")
		s.newestPod().Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.Now)}}
	}, v1alpha1.ReasonImagePull, v1alpha1.ReasonImagePull)
	check("waits without a limit with startupTimeout 0", func(s *scenario) {
		s.updateSpec(func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.StartupTimeout = seconds(0) }).setWaitingReason("ErrImagePull")
	}, v1alpha1.ReasonImagePull, "")
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
		require.True(t, len(d.DeleteJobs) == 0 && d.RequeueAfter == time.Second, "Jobs %v are deleted, requeued after %s", d.DeleteJobs, d.RequeueAfter)
		s.advanceClock(time.Second).wantPhase(v1alpha1.SessionStopping, "")
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonGracePeriodExceeded)
		require.Contains(t, s.findCondition(v1alpha1.ConditionBlocked).Message, "Pod fix-r1-a1-0 was terminated at ")
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
		s.wantEvent(v1alpha1.EventStopped)
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked)
	})
	t.Run("Running becomes Stopping after inactivityTimeout, and stays Stopped", func(t *testing.T) {
		s := newIdleScenario(t)
		s.renew(s.Now).wantStoppedWhenIdleFor(10 * time.Minute)
		s.wantEvent(v1alpha1.EventInactivityTimeout)
		s.removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
		s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionStopped, "")
		s.updateSpec(suspend).wantPhase(v1alpha1.SessionStopped, "")
		s.updateSpec(resume).startAttempt().wantPhase(v1alpha1.SessionCreating, "")
	})
	t.Run("Running becomes Stopping when an interactive runner reports that its run is finished", func(t *testing.T) {
		s := newReportingScenario(t, setInteractive, func(spec *v1alpha1.AgenticSessionSpec) { spec.StopOnRunFinished = true })
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
		s.updateSpec(suspend).reconcile().markJobDeleted().updateSpec(resume).wantPhase(v1alpha1.SessionStopping, "")
		s.removeJobAndPod().startAttempt().wantPhase(v1alpha1.SessionCreating, "")
		require.Equal(t, "fix-r1-a2", s.Session.Status.Attempt.JobName)
	})

	t.Run("a finished session is deleted after ttlSecondsAfterFinished", func(t *testing.T) {
		for code := range int32(2) {
			s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.TTLSecondsAfterFinished = new(int32(60)) }).startAttempt().exitRunner(code, "")
			d := s.decideAndRecord()
			require.True(t, !d.DeleteSession && d.RequeueAfter == time.Minute, "deleted: %t, requeued after %s, want 1m", d.DeleteSession, d.RequeueAfter)
			require.True(t, s.advanceClock(time.Minute).decideAndRecord().DeleteSession, "the session is not deleted")
		}
	})
	t.Run("a stopped session is not deleted after ttlSecondsAfterFinished", func(t *testing.T) {
		s := newScenario(t, suspend, func(spec *v1alpha1.AgenticSessionSpec) { spec.TTLSecondsAfterFinished = new(int32(0)) })
		require.True(t, !s.advanceClock(time.Hour).decideAndRecord().DeleteSession, "the session is deleted")
	})
	t.Run("a session that is being deleted is not changed", func(t *testing.T) {
		s := newRunningScenario(t).updateSpec(suspend)
		s.Session.DeletionTimestamp = new(metav1.NewTime(testStartTime))
		before := s.Session
		d := s.decideAndRecord()
		require.True(t, !d.ChangesJobs() && len(d.ApplyObjects) == 0 && len(d.Events) == 0 && !d.ChangesStatus(before), "%+v", d)
	})
}

// The ends that runnerEnds does not have.
func TestRunFailureReasons(t *testing.T) {
	check := func(title string, change func(s *scenario), phase v1alpha1.SessionPhase, reason string, code *int32) {
		t.Run(title, func(t *testing.T) {
			s := newRunningScenario(t)
			s.advanceClock(time.Minute)
			change(s)
			s.wantPhase(phase, reason)
			for _, attempt := range s.Session.Status.Attempts {
				require.Equal(t, code, attempt.ExitCode)
			}
		})
	}
	check("the deadline is exceeded and the runner exits with 0", func(s *scenario) {
		s.exitRunner(0, "")
		s.newestJob().Status.Conditions[0] = batchv1.JobCondition{
			Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, LastTransitionTime: metav1.NewTime(s.Now),
		}
	}, v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded, new(int32(0)))
	check("the Pod is evicted", func(s *scenario) {
		s.newestPod().Status.Reason, s.newestPod().Status.ContainerStatuses = "Evicted", nil
		s.endJob(batchv1.JobFailed, "")
	}, v1alpha1.SessionFailed, v1alpha1.ReasonEvicted, nil)
	check("the node is drained and the runner exits with 0", func(s *scenario) {
		s.disrupt("EvictionByEvictionAPI").exitRunner(0, "")
		s.newestJob().Status.Conditions[0].Type = batchv1.JobFailed
	}, v1alpha1.SessionFailed, v1alpha1.ReasonEvicted, new(int32(0)))
	check("the node is lost", func(s *scenario) { s.disrupt("DeletionByTaintManager").endJob(batchv1.JobFailed, "") }, v1alpha1.SessionFailed, v1alpha1.ReasonPodLost, nil)
	check("a user deletes the Pod, and its node does not answer", func(s *scenario) { s.deletePod().endJob(batchv1.JobFailed, "") }, v1alpha1.SessionFailed, v1alpha1.ReasonPodDeleted, nil)
	check("a user deletes the Pod after its runner failed", func(s *scenario) { s.exitRunner(7, "").advanceClock(time.Second).deletePod() }, v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError, new(int32(7)))
	check("a sidecar fails after the runner succeeded", func(s *scenario) {
		s.exitRunner(0, "")
		s.newestJob().Status.Conditions[0].Type = batchv1.JobFailed
		s.newestPod().Status.InitContainerStatuses = []corev1.ContainerStatus{{
			Name: "proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		}}
	}, v1alpha1.SessionCompleted, v1alpha1.ReasonCompleted, new(int32(0)))
	check("the Job counts a failure but has not ended", func(s *scenario) { s.newestJob().Status.Failed = 1 }, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil)
	check("the Job will fail but its Pod still runs", func(s *scenario) { s.endJob(batchv1.JobFailureTarget, "") }, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil)
	check("a Pod of an earlier Job with the same name failed", func(s *scenario) {
		other := s.newestPod().DeepCopy()
		other.CreationTimestamp = metav1.NewTime(s.Now.Add(time.Hour))
		other.OwnerReferences[0].UID = "older"
		other.Status.Reason = "Evicted"
		s.Pods = append(s.Pods, *other)
	}, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil)
}

func TestRaceOfStopAndOutcome(t *testing.T) {
	newRunningScenario(t).advanceClock(time.Minute).exitRunner(0, "").updateSpec(suspend).wantPhase(v1alpha1.SessionCompleted, "")
	// An outcome before the deletion of the Job wins over a recorded stop: the deletion failed, because the Job had changed.
	newRunningScenario(t).advanceClock(time.Minute).updateSpec(suspend).reconcile().exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
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
	before := s.Session.Status
	require.Equal(t, before, s.advanceClock(time.Minute).reconcile().Session.Status)
	s.newestRunnerStatus().Ready = false
	s.wantPhase(v1alpha1.SessionRunning, v1alpha1.ReasonRunning)
	s.wantCondition(v1alpha1.ConditionServing, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotReady)
	s.newestRunnerStatus().Ready = true
	s.updateSpec(suspend).reconcile().wantCondition(v1alpha1.ConditionServing, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotReady)
}

// runnerEnds are the ends of a runner that started, by their reasons.
var runnerEnds = map[string]func(s *scenario, message string){
	v1alpha1.ReasonEvicted: func(s *scenario, message string) { s.disrupt("EvictionByEvictionAPI").exitRunner(143, message) },
	v1alpha1.ReasonOOMKilled: func(s *scenario, message string) {
		s.exitRunner(137, message).newestRunnerStatus().State.Terminated.Reason = v1alpha1.ReasonOOMKilled
	},
	v1alpha1.ReasonDeadlineExceeded: func(s *scenario, message string) {
		s.exitRunner(143, message).newestJob().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
	},
	v1alpha1.ReasonPodDeleted:      func(s *scenario, message string) { s.deletePod().exitRunner(143, message) },
	v1alpha1.ReasonExitedWithError: func(s *scenario, message string) { s.exitRunner(7, message) },
	v1alpha1.ReasonCompleted:       func(s *scenario, message string) { s.exitRunner(0, message) },
}

// The cache may show the end of a Job before that of its Pod, and before the handler of deletions has remembered its Pod. Whatever ends
// a runner, the failure carries what the agent or git said last.
func TestTheEndOfAPodCountsIfItArrivesSoonAfterTheEndOfItsJob(t *testing.T) {
	check := func(reason string, end func(s *scenario, message string), message string, delay time.Duration, isDeleted bool) {
		t.Run(fmt.Sprintf("%s after %q, the Pod ends after %s, deleted %v", reason, message, delay, isDeleted), func(t *testing.T) {
			s := newRunningScenario(t)
			before := *s.newestPod().DeepCopy()
			end(s, message)
			pods := s.Pods
			if delay > 0 {
				if s.Pods = nil; !isDeleted {
					s.Pods = []corev1.Pod{before}
				}
				after := s.wantPhase(v1alpha1.SessionRunning, "").RequeueAfter
				require.True(t, after > 0 && after <= maxPodLag, "decides again after %s", after)
				s.advanceClock(delay)
			}
			isInTime := delay < maxPodLag
			if isInTime {
				if s.Pods = pods; isDeleted {
					s.DeletedPod = pods[0].UID
				}
			} else if reason != v1alpha1.ReasonCompleted && reason != v1alpha1.ReasonDeadlineExceeded { // the Job says the others
				reason = v1alpha1.ReasonPodLost
			}
			attempts := s.reconcile().Session.Status.Attempts
			require.True(t, len(attempts) == 1 && attempts[0].Reason == reason && (attempts[0].ExitCode != nil) == isInTime, "%+v", attempts)
			wantsMessage := isInTime && message != "" && reason != v1alpha1.ReasonCompleted
			for _, got := range []string{attempts[0].Message, s.findCondition(v1alpha1.ConditionSucceeded).Message} {
				require.True(t, strings.HasSuffix(got, ": cloning shop: no space left") == wantsMessage, "%q", got)
			}
		})
	}
	for reason, end := range runnerEnds {
		for _, message := range []string{"", "cloning shop: no space left", `{"summary": "cloning shop: no space left"}`} {
			for _, delay := range []time.Duration{0, time.Second, maxPodLag - time.Second, maxPodLag, time.Hour} {
				check(reason, end, message, delay, true)
				check(reason, end, message, delay, false)
			}
		}
	}
}

// A Pod may have run while no operator did. Its cost is then what it could be, and not zero.
func TestAnAttemptThatNobodySawStartCostsTheRestOfTheBudget(t *testing.T) {
	check := func(title string, prepare func(*scenario), want v1alpha1.Number) {
		t.Run(title, func(t *testing.T) {
			s := setModel(newScenario(t, withMaxCost("3"))).startAttempt()
			s.newestJob().Status.StartTime, s.Pods = nil, nil
			s.decideAndRecord()
			prepare(s)
			s.Jobs = nil
			s.reconcile().wantTotalCost(want)
		})
	}
	check("its Job is deleted", func(*scenario) {}, "3")
	check("it stops now", func(s *scenario) { s.updateSpec(suspend).decideAndRecord() }, "unknown") // its Pod would be remembered
	check("its Pod has not started its runner", func(s *scenario) { s.createPod(s.newestJob()); s.setModelState(corev1.ContainerState{}) }, "unknown")
	check("its evicted Pod has lost its statuses", func(s *scenario) {
		s.newestJob().Status.StartTime = new(metav1.NewTime(s.Now))
		s.createPod(s.newestJob())
		s.startRunner().reconcile().newestPod().Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	}, "3")
	check("it has stopped for an hour", func(s *scenario) { s.updateSpec(suspend).reconcile().advanceClock(time.Hour) }, "3")
	check("it was never created", func(s *scenario) {
		s.Session.Status.Attempt.JobUID = ""
		s.Jobs = nil
		s.updateSpec(suspend)
	}, "unknown")
}

// The rows for AgenticSession in docs/conditions.md.
func TestSummaryConditionsAreReadByKstatus(t *testing.T) {
	// state is the statuses of Ready, Reconciling and Stalled, and what kstatus makes of them.
	type state struct {
		ready, reconciling, stalled metav1.ConditionStatus
		kstatus                     status.Status
	}
	waits := state{metav1.ConditionFalse, metav1.ConditionTrue, metav1.ConditionFalse, status.InProgressStatus}
	fails := state{metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionTrue, status.FailedStatus}
	works := state{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionFalse, status.CurrentStatus}
	stopped := state{metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionFalse, status.InProgressStatus}
	check := func(title string, want state, reason string, prepare func(s *scenario)) {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t)
			s.Session.Status.ObservedGeneration = -1 // the CRD's default
			kstatustest.AssertKstatus(t, s.Session, status.InProgressStatus)
			prepare(s)
			s.decideAndRecord()
			kstatustest.AssertKstatus(t, s.Session, want.kstatus)
			s.wantCondition(v1alpha1.ConditionReady, want.ready, reason)
			s.wantCondition(v1alpha1.ConditionReconciling, want.reconciling, reason)
			s.wantCondition(v1alpha1.ConditionStalled, want.stalled, reason)
		})
	}
	check("creates its first Job", waits, v1alpha1.ReasonWaiting, func(*scenario) {})
	check("waits for its SessionRunner", waits, v1alpha1.ReasonRunnerNotFound, func(s *scenario) { s.Runner = nil })
	check("is not protected by the admission policies", waits, v1alpha1.ReasonUnprotected, func(s *scenario) { s.Unprotected = "a does not exist" })
	check("waits for its parent", waits, v1alpha1.ReasonParentNotFinished, func(s *scenario) {
		*s = *newContinuingScenario(s.t)
		s.Parent.Status.Phase = v1alpha1.SessionRunning
	})
	check("waits for a quota", waits, v1alpha1.ReasonQuotaExceeded, func(s *scenario) { s.reconcile().refuse(decision.QuotaExceeded) })
	check("another object has a name that it needs", fails, v1alpha1.ReasonNameTaken, func(s *scenario) { s.reconcile().refuse(decision.AlreadyExists) })
	check("is not allowed by its SessionRunner", fails, v1alpha1.ReasonNotAllowed, func(s *scenario) { s.Session.Spec.Image = "other:1" })
	check("has an image that a Policy does not allow", fails, v1alpha1.ReasonImageNotAllowed, func(s *scenario) {
		s.Policies = testbuilder.AllowImages("registry.example/*")
	})
	check("waits for its Pod", waits, v1alpha1.ReasonCreating, func(s *scenario) { s.startAttempt() })
	check("waits for an image", waits, v1alpha1.ReasonImagePull, func(s *scenario) { s.startAttempt().setWaitingReason("ErrImagePull") })
	check("runs", works, v1alpha1.ReasonRunning, func(s *scenario) { s.startAttempt().startRunner() })
	check("runs until the suspension of its Job is observed", works, v1alpha1.ReasonRunning, func(s *scenario) {
		s.startAttempt().startRunner().newestJob().Spec.Suspend = new(true)
	})
	check("stops", waits, v1alpha1.ReasonStopping, func(s *scenario) { s.startAttempt().startRunner().updateSpec(suspend) })
	check("stopped", stopped, v1alpha1.ReasonStopped, func(s *scenario) { s.updateSpec(suspend) })
	check("waits until other sessions end", waits, v1alpha1.ReasonQueued, func(s *scenario) { *s = *newWaitingScenario(s.t) })
	check("its Job waits in a queue", waits, v1alpha1.ReasonQueued, func(s *scenario) { *s = *newQueuedScenario(s.t) })
	check("another client suspended its Job", waits, v1alpha1.ReasonJobSuspended, func(s *scenario) {
		s.startAttempt().startRunner().reconcile().suspendJob().stopSuspendedPod()
	})
	check("its cost reached the limit", fails, v1alpha1.ReasonBudgetExceeded, func(s *scenario) {
		*s = *newReportingScenario(s.t, withMaxCost("1"))
		s.reportCost("1").wantPhase(v1alpha1.SessionStopping, "")
		s.removeJobAndPod()
	})
	check("waits for a retry", waits, v1alpha1.ReasonRetrying, func(s *scenario) { s.updateSpec(withRetryLimit(1)).startAttempt().exitRunner(1, "") })
	check("completed", works, v1alpha1.ReasonCompleted, func(s *scenario) { s.startAttempt().exitRunner(0, "") })
	check("failed", fails, v1alpha1.ReasonExitedWithError, func(s *scenario) { s.startAttempt().exitRunner(1, "") })
	check("exceeded its deadline", fails, v1alpha1.ReasonDeadlineExceeded, func(s *scenario) {
		s.startAttempt().advanceClock(time.Hour).endJob(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	})
}
