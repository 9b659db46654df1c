package session

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Each of these is a row of the state table.
func TestStates(t *testing.T) {
	t.Run("a session that is created is Pending", func(t *testing.T) {
		s := scenery(t)
		plan := s.wants(v1alpha1.SessionPending, v1alpha1.ReasonWaiting)
		if plan.Create == nil || plan.Create.Name != "fix-r1-a1" {
			t.Errorf("Job %v, want fix-r1-a1", plan.Create)
		}
	})
	t.Run("Pending becomes Creating when its Job is there", func(t *testing.T) {
		s := scenery(t).begin()
		s.wants(v1alpha1.SessionCreating, v1alpha1.ReasonCreating)
		s.is(v1alpha1.ConditionJobCreated, metav1.ConditionTrue, v1alpha1.ReasonJobThere)
		s.tells(v1alpha1.EventJobCreated)
	})
	t.Run("Pending becomes Stopped by its mode", func(t *testing.T) {
		s := scenery(t, stopped)
		if plan := s.wants(v1alpha1.SessionStopped, ""); plan.Create != nil {
			t.Error("a Job is made")
		}
	})
	t.Run("Pending becomes Stopped by its mode when its Job was not made yet", func(t *testing.T) {
		s := scenery(t)
		s.decide()
		s.changed(stopped).wants(v1alpha1.SessionStopped, "")
	})
	t.Run("Pending becomes Failed when the dry run is refused", func(t *testing.T) {
		s := scenery(t)
		s.decide()
		s.Refusal = &Refusal{RefusedInvalid, "Pod", "violates PodSecurity"}
		if plan := s.wants(v1alpha1.SessionFailed, v1alpha1.ReasonPodRejected); plan.Create != nil {
			t.Error("its Job is made nevertheless")
		}
		s.tells(v1alpha1.EventPodRejected)
	})
	t.Run("Pending becomes Failed when something is missing for longer than startupTimeout", func(t *testing.T) {
		s := scenery(t)
		s.Runner = nil
		if plan := s.wants(v1alpha1.SessionPending, v1alpha1.ReasonRunnerNotFound); plan.RequeueAfter != 600*time.Second {
			t.Errorf("it is looked at after %s, want 10m", plan.RequeueAfter)
		}
		s.is(v1alpha1.ConditionDependenciesReady, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotFound)
		s.after(599*time.Second).wants(v1alpha1.SessionPending, "")
		s.after(time.Second).wants(v1alpha1.SessionFailed, v1alpha1.ReasonRunnerNotFound)
	})
	t.Run("Pending goes on when what was missing comes", func(t *testing.T) {
		s := scenery(t)
		s.Runner = nil
		s.decide()
		s.Runner = runner()
		s.after(time.Minute).begin().wants(v1alpha1.SessionCreating, "")
		s.is(v1alpha1.ConditionDependenciesReady, metav1.ConditionTrue, v1alpha1.ReasonDependenciesReady)
	})
	t.Run("Pending waits for a quota as long as it takes", func(t *testing.T) {
		s := scenery(t)
		s.decide()
		for range 5 {
			s.Refusal = &Refusal{RefusedQuota, "Pod", "exceeded quota"}
			s.after(time.Hour).wants(v1alpha1.SessionPending, v1alpha1.ReasonQuotaExceeded)
			s.is(v1alpha1.ConditionJobCreated, metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded)
		}
		s.begin().wants(v1alpha1.SessionCreating, "")
	})
	t.Run("Creating becomes Running when the runner's container has started", func(t *testing.T) {
		s := scenery(t).begin()
		s.decide()
		s.running().wants(v1alpha1.SessionRunning, "")
		s.tells(v1alpha1.EventRunning)
	})
	t.Run("Creating becomes Running when an interactive one is ready", func(t *testing.T) {
		s := scenery(t, interactive).begin().running()
		s.runnerState().Ready = false
		s.wants(v1alpha1.SessionCreating, "")
		s.runnerState().Ready = true
		s.wants(v1alpha1.SessionRunning, "")
		s.runnerState().Ready = false
		s.wants(v1alpha1.SessionRunning, "")
	})
	t.Run("Creating becomes Completed by a quick exit", func(t *testing.T) {
		s := scenery(t).begin()
		s.decide()
		s.exited(0, "").wants(v1alpha1.SessionCompleted, "")
		s.is(v1alpha1.ConditionRunnerStarted, metav1.ConditionTrue, v1alpha1.ReasonStarted)
		s.tells(v1alpha1.EventCompleted)
	})
	t.Run("Creating becomes Failed by a quick exit", func(t *testing.T) {
		s := scenery(t).begin()
		s.decide()
		s.exited(3, "").wants(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
	})
	for waiting, reason := range map[string]string{
		"ImagePullBackOff": v1alpha1.ReasonImagePull, "CreateContainerConfigError": v1alpha1.ReasonConfigError,
	} {
		t.Run("Creating becomes Failed when "+waiting+" lasts longer than startupTimeout", func(t *testing.T) {
			s := scenery(t).begin().waiting(waiting)
			s.after(599*time.Second).wants(v1alpha1.SessionCreating, reason)
			plan := s.after(time.Second).wants(v1alpha1.SessionFailed, reason)
			if len(plan.Delete) != 1 {
				t.Error("its Job stays")
			}
		})
	}
	t.Run("Creating becomes Failed when its node cannot get the Pod ready for longer than startupTimeout", func(t *testing.T) {
		s := scenery(t).begin().unready()
		s.after(599*time.Second).wants(v1alpha1.SessionCreating, v1alpha1.ReasonCreating)
		plan := s.after(time.Second).wants(v1alpha1.SessionFailed, v1alpha1.ReasonConfigError)
		if len(plan.Delete) != 1 {
			t.Error("its Job stays")
		}
	})
	t.Run("Creating waits for a large image, once the Pod is ready for it", func(t *testing.T) {
		s := scenery(t).begin().unready()
		s.pod().Status.Conditions[0].Status = corev1.ConditionTrue
		s.waiting("ContainerCreating").after(3*time.Hour).wants(v1alpha1.SessionCreating, v1alpha1.ReasonCreating)
	})
	t.Run("Creating does not count how long the Pod waited for a node", func(t *testing.T) {
		s := scenery(t).begin()
		s.after(3 * time.Hour).waiting("ErrImagePull")
		s.pod().Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.Now)}}
		s.after(599*time.Second).wants(v1alpha1.SessionCreating, v1alpha1.ReasonImagePull)
		s.after(time.Second).wants(v1alpha1.SessionFailed, v1alpha1.ReasonImagePull)
	})
	t.Run("Creating waits for ever with startupTimeout 0", func(t *testing.T) {
		s := scenery(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.StartupTimeout = new(int32(0)) }).begin().waiting("ErrImagePull")
		s.after(240*time.Hour).wants(v1alpha1.SessionCreating, v1alpha1.ReasonImagePull)
	})
	t.Run("Running becomes Pending when it may be tried again", func(t *testing.T) {
		s := scenery(t, retry(1)).begin().running()
		s.decide()
		s.exited(1, "").wants(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
		s.tells(v1alpha1.EventRetrying)
		s.after(firstDelay).begin().wants(v1alpha1.SessionCreating, "")
		if name := s.Session.Status.Job; name != "fix-r1-a2" {
			t.Errorf("Job %s, want fix-r1-a2", name)
		}
		s.exited(1, "").wants(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
	})
	t.Run("Creating becomes Pending when it is disrupted and may be tried again", func(t *testing.T) {
		s := scenery(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Retry = &v1alpha1.SessionRetry{OnDisruption: true} }).begin()
		s.pod().Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"}}
		s.ended(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded).wants(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
		if s.Session.Status.Retries != 0 {
			t.Error("a disruption counts for limit")
		}
	})
	t.Run("Stopping becomes Stopped with the result that its Pod left, though Job and Pod are gone at once", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.decide()
		s.changed(stopped).wants(v1alpha1.SessionStopping, "")
		s.runnerState().State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, Message: `{"costUSD": 0.2}`}}
		s.Jobs = nil // what a shell remembers of the Pod is left
		s.wants(v1alpha1.SessionStopped, "")
		run := s.Session.Status.Runs[0]
		if run.CostUSD == nil || *run.CostUSD != "0.2" || run.ExitCode == nil || *run.ExitCode != 143 || *s.Session.Status.TotalCostUSD != "0.2" {
			t.Errorf("%+v", run)
		}
	})
	t.Run("Running becomes Stopping by its mode, and Stopped when its Pod is gone", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.decide()
		if plan := s.changed(stopped).wants(v1alpha1.SessionStopping, ""); len(plan.Delete) != 1 {
			t.Error("its Job is not deleted")
		}
		s.tells(v1alpha1.EventStopping)
		if plan := s.deleting().after(20*time.Second).wants(v1alpha1.SessionStopping, ""); len(plan.Delete) != 0 {
			t.Error("its Job is deleted again")
		}
		s.gone().wants(v1alpha1.SessionStopped, "")
		s.tells(v1alpha1.EventStopped)
	})
	t.Run("Running becomes Stopping when it is idle, and stays Stopped", func(t *testing.T) {
		s := scenery(t, interactive, func(spec *v1alpha1.AgenticSessionSpec) { spec.InactivityTimeout = new(int32(60)) })
		s.Runner.Spec.ActivityLease = true
		s.begin().running()
		if plan := s.wants(v1alpha1.SessionRunning, ""); plan.RequeueAfter != time.Minute {
			t.Errorf("it is looked at after %s, want 1m", plan.RequeueAfter)
		}
		s.after(time.Minute)
		s.Activity = &Activity{Renewed: s.Now.Add(-30 * time.Second)}
		if plan := s.wants(v1alpha1.SessionRunning, ""); plan.RequeueAfter != 30*time.Second {
			t.Errorf("it is looked at after %s, want 30s", plan.RequeueAfter)
		}
		s.after(30*time.Second).wants(v1alpha1.SessionStopping, "")
		s.tells(v1alpha1.EventIdleStop)
		s.gone().wants(v1alpha1.SessionStopped, "")
		s.after(time.Hour).wants(v1alpha1.SessionStopped, "")
		s.changed(stopped).wants(v1alpha1.SessionStopped, "")
		s.changed(started).begin().wants(v1alpha1.SessionCreating, "")
	})
	t.Run("Running becomes Stopping when an interactive one has finished what it was at", func(t *testing.T) {
		s := scenery(t, interactive, func(spec *v1alpha1.AgenticSessionSpec) { spec.StopOnRunFinished = true })
		s.Runner.Spec.ActivityLease = true
		s.begin().running()
		s.Activity = &Activity{Finished: "fix-r1-a0"}
		s.wants(v1alpha1.SessionRunning, "")
		s.Activity = &Activity{Finished: "fix-r1-a1"}
		s.wants(v1alpha1.SessionStopping, "")
		s.gone().wants(v1alpha1.SessionStopped, "")
		s.changed(again).begin().wants(v1alpha1.SessionCreating, "")
		if name := s.Session.Status.Job; name != "fix-r2-a1" {
			t.Errorf("Job %s, want fix-r2-a1", name)
		}
	})
	t.Run("Stopping tells when a Pod is stuck, and kills nobody", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.changed(stopped).decide()
		plan := s.deleting().after(54*time.Second).wants(v1alpha1.SessionStopping, "")
		if plan.RequeueAfter != time.Second {
			t.Errorf("it is looked at after %s, want 1s", plan.RequeueAfter)
		}
		s.after(time.Second).wants(v1alpha1.SessionStopping, "")
		s.is(v1alpha1.ConditionStopStuck, metav1.ConditionTrue, v1alpha1.ReasonGraceOver)
		s.gone().wants(v1alpha1.SessionStopped, "")
		s.is(v1alpha1.ConditionStopStuck, metav1.ConditionFalse, v1alpha1.ReasonPodGone)
	})
	t.Run("Stopped becomes Pending by its mode, with a Job of its own", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.changed(stopped).decide()
		s.gone().decide()
		s.changed(started).begin().wants(v1alpha1.SessionCreating, "")
		if name := s.Session.Status.Job; name != "fix-r1-a2" {
			t.Errorf("Job %s, want fix-r1-a2", name)
		}
	})
	t.Run("a stop that was begun is carried out before the session goes on", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.changed(stopped).decide()
		s.deleting().changed(started).wants(v1alpha1.SessionStopping, "")
		s.gone().begin().wants(v1alpha1.SessionCreating, "")
	})
	for _, code := range []int32{0, 1} {
		t.Run("a session that has ended becomes Pending by one more runRequest", func(t *testing.T) {
			s := scenery(t).begin().running().exited(code, "")
			s.decide()
			s.after(time.Hour).changed(again).begin().wants(v1alpha1.SessionCreating, "")
			if name := s.Session.Status.Job; name != "fix-r2-a1" {
				t.Errorf("Job %s, want fix-r2-a1", name)
			}
			if s.Session.Status.CompletionTime != nil {
				t.Error("it has a completionTime")
			}
		})
	}
	t.Run("a session that has ended is deleted when its time to live is over", func(t *testing.T) {
		s := scenery(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.TTLSecondsAfterFinished = new(int32(60)) }).begin().exited(0, "")
		if plan := s.decide(); plan.Expired || plan.RequeueAfter != time.Minute {
			t.Errorf("expired: %t, looked at after %s, want 1m", plan.Expired, plan.RequeueAfter)
		}
		if plan := s.after(time.Minute).decide(); !plan.Expired {
			t.Error("it stays")
		}
	})
	t.Run("a session that is stopped has no time to live", func(t *testing.T) {
		s := scenery(t, stopped, func(spec *v1alpha1.AgenticSessionSpec) { spec.TTLSecondsAfterFinished = new(int32(0)) })
		if plan := s.after(time.Hour).decide(); plan.Expired {
			t.Error("it is deleted")
		}
	})
	t.Run("a session that is being deleted is left alone", func(t *testing.T) {
		s := scenery(t)
		s.Session.DeletionTimestamp = new(metav1.NewTime(noon))
		if plan := s.decide(); plan.Create != nil || len(plan.Apply) > 0 || len(plan.Events) > 0 || plan.Changed(s.Session) {
			t.Errorf("%+v", plan)
		}
	})
}

func TestWhyARunFailed(t *testing.T) {
	tests := map[string]struct {
		ends   func(s *scene)
		phase  v1alpha1.SessionPhase
		reason string
		code   *int32
	}{
		"the runner exits with an error": {
			func(s *scene) { s.exited(7, "") }, v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError, new(int32(7)),
		},
		"the runner has too little memory": {
			func(s *scene) {
				s.exited(137, "")
				s.runnerState().State.Terminated.Reason = "OOMKilled"
			}, v1alpha1.SessionFailed, v1alpha1.ReasonOOMKilled, new(int32(137)),
		},
		"its time is up": {
			func(s *scene) {
				s.exited(143, "")
				s.job().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
			}, v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded, new(int32(143)),
		},
		"its time is up, and the runner ends as if nothing was": {
			func(s *scene) {
				s.exited(0, "")
				s.job().Status.Conditions[0] = batchv1.JobCondition{
					Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, LastTransitionTime: metav1.NewTime(s.Now),
				}
			}, v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded, new(int32(0)),
		},
		"it is evicted": {
			func(s *scene) {
				s.pod().Status.Reason, s.pod().Status.ContainerStatuses = "Evicted", nil
				s.ended(batchv1.JobFailed, "")
			}, v1alpha1.SessionFailed, v1alpha1.ReasonEvicted, nil,
		},
		"it is drained from its node, and the runner ends as if nothing was": {
			func(s *scene) {
				s.pod().Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
				s.exited(0, "")
				s.job().Status.Conditions[0].Type = batchv1.JobFailed
			}, v1alpha1.SessionFailed, v1alpha1.ReasonEvicted, new(int32(0)),
		},
		"its node is lost": {
			func(s *scene) {
				s.pod().Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"}}
				s.ended(batchv1.JobFailed, "")
			}, v1alpha1.SessionFailed, v1alpha1.ReasonPodLost, nil,
		},
		"its Pod is lost": {
			func(s *scene) {
				s.ended(batchv1.JobFailed, "")
				s.Pods = nil
			}, v1alpha1.SessionFailed, v1alpha1.ReasonPodLost, nil,
		},
		"somebody deletes its Job": {
			func(s *scene) { s.gone() }, v1alpha1.SessionFailed, v1alpha1.ReasonPodLost, nil,
		},
		"a sidecar fails after the runner has not": {
			func(s *scene) {
				s.exited(0, "")
				s.job().Status.Conditions[0].Type = batchv1.JobFailed
				s.pod().Status.InitContainerStatuses = []corev1.ContainerStatus{{
					Name: "proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
				}}
			}, v1alpha1.SessionCompleted, v1alpha1.ReasonCompleted, new(int32(0)),
		},
		"the Job counts a failure, and has not ended": {
			func(s *scene) { s.job().Status.Failed = 1 }, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil,
		},
		"the Job will fail, and its Pod is still there": {
			func(s *scene) { s.ended(batchv1.JobFailureTarget, "") }, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil,
		},
		"a Pod of another Job of the same name failed": {
			func(s *scene) {
				other := s.pod().DeepCopy()
				other.CreationTimestamp = metav1.NewTime(s.Now.Add(time.Hour))
				other.OwnerReferences[0].UID = "older"
				other.Status.Reason = "Evicted"
				s.Pods = append(s.Pods, *other)
			}, v1alpha1.SessionRunning, v1alpha1.ReasonRunning, nil,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := scenery(t).begin().running()
			s.decide()
			s.after(time.Minute)
			test.ends(s)
			s.wants(test.phase, test.reason)
			if len(s.Session.Status.Runs) == 0 {
				return
			}
			got := s.Session.Status.Runs[0].ExitCode
			if (got == nil) != (test.code == nil) || got != nil && *got != *test.code {
				t.Errorf("exit code %v, want %v", got, test.code)
			}
		})
	}
}

func TestWhatComesFirstWinsOverTheOther(t *testing.T) {
	t.Run("the outcome beats a stop that came later", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.decide()
		s.after(time.Minute).exited(0, "").changed(stopped).wants(v1alpha1.SessionCompleted, "")
	})
	t.Run("the outcome beats a stop that was recorded before it was seen", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.after(time.Minute).changed(stopped).decide()
		s.exited(0, "").wants(v1alpha1.SessionCompleted, "") // the delete met a newer version
	})
	t.Run("a stop beats how the runner takes it", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.changed(stopped).decide()
		s.deleting().after(3*time.Second).exited(143, "").wants(v1alpha1.SessionStopping, "")
		s.gone().wants(v1alpha1.SessionStopped, "")
	})
	t.Run("a runner that fails in the second in which it is told to stop was stopped", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.changed(stopped).decide()
		s.deleting().exited(143, "").wants(v1alpha1.SessionStopping, "")
	})
	t.Run("what a stopped runner leaves is kept", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.changed(stopped).decide()
		s.deleting().after(3*time.Second).exited(143, `{"costUSD": 0.5, "sdkSessionId": "abc"}`).decide()
		s.gone().wants(v1alpha1.SessionStopped, "")
		if cost := s.Session.Status.Runs[0].CostUSD; cost == nil || *cost != "0.5" {
			t.Errorf("cost %v, want 0.5", cost)
		}
		s.make(s.changed(started).decide())
		for _, variable := range s.job().Spec.Template.Spec.Containers[0].Env {
			if variable.Name == "AGENTIC_SDK_SESSION_ID" && variable.Value == "abc" {
				return
			}
		}
		t.Error("the next runner is not told how to go on")
	})
}
