package agenticsession

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestTimeoutDoesNotCountWhileThePodWaits(t *testing.T) {
	for _, isInteractive := range []bool{false, true} {
		s := newScenario(t, withTimeout(100), func(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = isInteractive }).startAttempt()
		s.newestPod().Spec.NodeName = ""
		for end := s.Now.Add(30 * time.Hour); s.Now.Before(end); {
			decision := s.decideAndRecord()
			require.True(t, decision.RequeueAfter > 0, "nothing reconciles the waiting session")
			s.advanceClock(min(decision.RequeueAfter, end.Sub(s.Now)))
			deadline := s.newestJob().Status.StartTime.Add(time.Duration(s.jobDeadlineSeconds()) * time.Second)
			require.True(t, deadline.After(s.Now), "the deadline of the waiting Job is over")
		}
		started := map[bool]time.Time{false: s.Now, true: s.Now.Add(time.Second)}[isInteractive] // which starts when it is ready
		s.startRunner().advanceClock(time.Second).reconcile().wantDeadline(30*60*60 + 100)
		require.True(t, s.Session.Status.StartTime.Time.Equal(started), "it started at %s, want %s", s.Session.Status.StartTime, started)
		s.advanceClock(39*time.Second).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
		s.wantActiveSeconds(40)
	}
}

// Without that, an interactive runner that never accepts connections would run without a limit.
func TestTimeoutCountsFromTheStartOfARunnerThatIsNotReady(t *testing.T) {
	s := newScenario(t, setInteractive, withTimeout(100)).startAttempt().advanceClock(time.Minute).startRunner()
	s.newestRunnerStatus().Ready = false
	s.wantPhase(v1alpha1.SessionCreating, "")
	s.wantDeadline(160)
}

func TestTimeoutOfARunningSessionCanBeChanged(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt().advanceClock(10 * time.Second).startRunner()
	s.decideAndRecord()
	waiting := newScenario(t, withTimeout(100)).startAttempt().advanceClock(10 * time.Second)
	for timeout, want := range map[int]int64{200: 210, 50: 60, 0: -1, 7200: 7210} {
		left := waiting.updateSpec(withTimeout(timeout)).reconcile().jobDeadlineSeconds() - want // of a Job whose runner has not started
		require.True(t, left <= 60*60 && (want < 0) == (left < 30*60), "it has %d seconds to start, with the timeout %d", left, timeout)
		s.updateSpec(withTimeout(timeout)).wantPhase(v1alpha1.SessionRunning, "")
		s.wantDeadline(want)
		require.True(t, s.decideAndRecord().SetDeadline == nil, "the deadline is set again")
	}
	s.Runner.Spec.Limits.Timeout = seconds(1) // for its next attempt
	s.updateSpec(withTimeout(100)).reconcile().wantDeadline(110)
}

func TestChangedSessionRunnerDoesNotChangeTheLimitsOfARunningAttempt(t *testing.T) {
	for title, change := range map[string]func(s *scenario){
		"deleted":                         func(s *scenario) { s.Runner = nil },
		"deleted, and created without it": func(s *scenario) { s.Runner = newTestRunner() },
		"activityLease removed":           func(s *scenario) { s.Runner.Spec.ActivityLease = false },
		"another image":                   func(s *scenario) { s.Runner.Spec.Image = "other:1" },
		"limits removed":                  func(s *scenario) { s.Runner.Spec.Limits = v1alpha1.SessionRunnerLimits{} },
		"limits raised": func(s *scenario) {
			s.Runner.Spec.Limits.Timeout, s.Runner.Spec.Limits.MaxCostUSD = seconds(9000), new(v1alpha1.Number("100"))
		},
	} {
		t.Run(title, func(t *testing.T) {
			start := func() *scenario {
				s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(600) })
				s.Runner.Spec.ActivityLease, s.Runner.Spec.Limits.Timeout, s.Runner.Spec.Limits.MaxCostUSD = true, seconds(3600), new(v1alpha1.Number("1"))
				s.startAttempt()
				change(s)
				s.startRunner().renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
				return s
			}
			start().wantStoppedWhenIdleFor(10 * time.Minute)
			s := start()
			s.wantDeadline(3600)
			s.reportCost("1").wantPhase(v1alpha1.SessionStopping, "")
			s = start()
			delete(s.Children, ChildKey{"Lease", LeaseName("fix")})
			require.Contains(t, strings.Join(objectKinds(s.decideAndRecord().ApplyObjects), " "), "Lease")
		})
	}
}

// The node's clock may be wrong: a session neither gets time for that, nor loses more than it waited.
func TestStartOnAWrongClockIsWithinTheJob(t *testing.T) {
	for wrong, want := range map[time.Duration]int64{time.Hour: 160, -time.Hour: 100} {
		s := newScenario(t, withTimeout(100)).startAttempt().advanceClock(time.Minute).startRunner()
		running := s.newestRunnerStatus().State.Running
		running.StartedAt.Time = running.StartedAt.Add(wrong)
		s.reconcile().wantDeadline(want)
	}
}

// Sidecars push and archive after the runner. A Pod that no operator observed may have run all the time.
func TestOnlyTheTimeInWhichTheRunnerMayHaveRunCounts(t *testing.T) {
	exitAt := func(finished metav1.Time) func(s *scenario) {
		return func(s *scenario) {
			s.startRunner().decideAndRecord()
			s.advanceClock(60*time.Second).exitRunner(0, "").newestRunnerStatus().State.Terminated.FinishedAt = finished
		}
	}
	check := func(title string, change func(s *scenario), reason string, want float64) {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, withTimeout(100)).startAttempt()
			s.decideAndRecord()
			change(s)
			s.decideAndRecord()
			require.Equal(t, reason, s.findCondition(v1alpha1.ConditionReady).Reason)
			require.Equal(t, reason == v1alpha1.ReasonDeadlineExceeded, strings.Contains(s.Session.Status.Attempts[0].Message, "waited for a node"))
			s.wantActiveSeconds(want)
		})
	}
	check("it ends before its Job", exitAt(metav1.NewTime(testStartTime.Add(40*time.Second))), v1alpha1.ReasonCompleted, 40)
	check("it ends after its Job, on a wrong clock", exitAt(metav1.NewTime(testStartTime.Add(time.Hour))), v1alpha1.ReasonCompleted, 60)
	check("it ends at no time that is known", func(s *scenario) {
		exitAt(metav1.Time{})(s)
		s.newestJob().Status.CompletionTime.Time = testStartTime.Add(50 * time.Second)
	}, v1alpha1.ReasonCompleted, 50)
	check("its Job is lost before anybody observes it", func(s *scenario) { s.removeJobAndPod().advanceClock(time.Hour) }, v1alpha1.ReasonPodLost, 100)
	check("its Job is lost", func(s *scenario) {
		s.startRunner().reconcile().removeJobAndPod().advanceClock(24 * time.Hour)
	}, v1alpha1.ReasonPodLost, 100)
	check("it is stopped", func(s *scenario) {
		s.startRunner().reconcile().advanceClock(10 * time.Second).updateSpec(suspend).decideAndRecord()
		s.removeJobAndPod().advanceClock(24 * time.Hour)
	}, v1alpha1.ReasonStopped, 10+GracePeriodSeconds)
	check("its Pod waits until the deadline", func(s *scenario) {
		s.advanceClock(2*time.Hour).endJob(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	}, v1alpha1.ReasonDeadlineExceeded, 0)
}

// jobDeadlineSeconds returns the deadline of the newest Job; -1 if it has none.
func (s *scenario) jobDeadlineSeconds() int64 {
	return ptr.Deref(s.newestJob().Spec.ActiveDeadlineSeconds, -1)
}

// secondsLeft returns the deadline of the newest Job without what it has for its start.
func (s *scenario) secondsLeft() int64 {
	return s.jobDeadlineSeconds() - int64(startupAllowance/time.Second)
}

func seconds(number int) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Duration(number) * time.Second}}
}

func TestJobDeadlineIsTheRemainingTime(t *testing.T) {
	check := func(title string, timeout, most *v1alpha1.Duration, limit int64) {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = timeout })
			s.Runner.Spec.Limits.Timeout = most
			s.startAttempt().advanceClock(20 * time.Minute)
			got := s.secondsLeft()
			require.True(t, got == limit || limit < 0, "deadline of %d seconds before the runner starts, want %d", got, limit)
			s.startRunner().decideAndRecord()
			want := limit
			if want >= 0 {
				want += 20 * 60
			}
			s.wantDeadline(want)
		})
	}
	check("the default is 4 hours", nil, nil, 14400)
	check("timeout", seconds(60), nil, 60)
	check("timeout 0 means no deadline", seconds(0), nil, -1)
	check("a lower limit of the SessionRunner applies", seconds(60), seconds(30), 30)
	check("a higher limit of the SessionRunner does not apply", seconds(60), seconds(90), 60)
	check("timeout 0 is limited by the SessionRunner", seconds(0), seconds(30), 30)
	check("a SessionRunner's limit of 0 does not apply", seconds(60), seconds(0), 60)
	check("the default is limited by the SessionRunner", nil, seconds(30), 30)
}

func TestTimeoutCountsAllRuns(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt().startRunner()
	s.advanceClock(30*time.Second).exitRunner(0, "").decideAndRecord()
	require.Equal(t, 70, s.updateSpec(requestNextRun).advanceClock(time.Hour).startAttempt().secondsLeft())
	s.startRunner().reconcile().advanceClock(20500 * time.Millisecond).updateSpec(suspend).decideAndRecord()
	s.markJobDeleted().advanceClock(time.Second).removeJobAndPod().decideAndRecord()
	require.Equal(t, 48, s.updateSpec(resume).advanceClock(time.Hour).startAttempt().secondsLeft())
	s.startRunner().decideAndRecord()
	s.advanceClock(48*time.Second).exitRunner(143, "").newestJob().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
	s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	s.wantEvent(v1alpha1.EventDeadlineExceeded)
	require.Contains(t, s.findCondition(v1alpha1.ConditionSucceeded).Message, "increase timeout to run it again")

	decision := s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	require.True(t, decision.CreateJob == nil, "a Job is created without remaining time")
	require.Equal(t, 60, s.updateSpec(withTimeout(160)).updateSpec(requestNextRun).startAttempt().secondsLeft())
}

func TestFailedRunIsNotRetriedWithoutRemainingTime(t *testing.T) {
	s := newScenario(t, withTimeout(60), withRetryLimit(5)).startAttempt().startRunner()
	s.advanceClock(60*time.Second).exitRunner(1, "").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
}

func TestRetryDelayDoublesEachTimeOrGrowsByItsFactor(t *testing.T) {
	check := func(title string, retry v1alpha1.Retry, delays []int) {
		t.Run(title, func(t *testing.T) {
			retry.Limit = new(int32(len(delays)))
			s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Retry = &v1alpha1.SessionRetry{Retry: retry} })
			for _, delay := range delays {
				s.startAttempt().exitRunner(1, "")
				want := time.Duration(delay) * time.Second
				require.Equal(t, want, s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying).RequeueAfter)
				s.wantEvent(v1alpha1.EventRetrying)
				s.advanceClock(want-time.Second).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
				s.advanceClock(time.Second)
			}
			s.startAttempt().exitRunner(1, "").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
			s.wantCondition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonExitedWithError)
			s.updateSpec(requestNextRun).startAttempt()
			require.True(t, s.Session.Status.Retries == 0, "the retries of the previous run count for the next run")
		})
	}
	check("by default", v1alpha1.Retry{}, []int{10, 20, 40, 80, 160})
	check("of its field", v1alpha1.Retry{Backoff: seconds(60), Factor: new(v1alpha1.Number("3"))}, []int{60, 180})
}

func TestDisruptionsAreRetriedOnlyWithOnDisruption(t *testing.T) {
	s := newRunningScenario(t, withRetryLimit(5))
	s.removeJobAndPod().wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPodLost)
	s = newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Retry = &v1alpha1.SessionRetry{OnDisruption: true} })
	for range maxDisruptions {
		s.startAttempt().startRunner().decideAndRecord()
		s.removeJobAndPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
		s.advanceClock(time.Hour)
	}
	s.startAttempt().startRunner().decideAndRecord()
	s.removeJobAndPod().wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPodLost)
}

func TestStatusKeepsTheLastTenRuns(t *testing.T) {
	s := newScenario(t)
	var deleted []string
	for range 12 {
		decision := s.startAttempt().startRunner().advanceClock(time.Second).exitRunner(0, `{"costUSD": 0.1}`).decideAndRecord()
		for _, job := range decision.DeleteJobs {
			deleted = append(deleted, job.Name)
			s.Jobs = slices.DeleteFunc(s.Jobs, func(other *batchv1.Job) bool { return other.UID == job.UID })
		}
		s.updateSpec(requestNextRun)
	}
	require.True(t, slices.Equal(deleted, []string{"fix-r1-a1", "fix-r2-a1"}), "Jobs %v are deleted", deleted)
	status := &s.Session.Status
	require.True(t, len(status.Attempts) == maxRecordedRuns && status.Attempts[9].Run == 12 && status.Attempts[0].Run == 3, "%+v", status.Attempts)
	require.True(t, status.ActiveDuration.Seconds() == 12 && *status.TotalCostUSD == "1.2", "%+v", status)
}

// newIdleScenario returns a session with an inactivityTimeout of 10 minutes whose runner just started.
func newIdleScenario(t *testing.T) *scenario {
	t.Helper()
	return newReportingScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(600) })
}

// renew sets the time that the runner wrote into its Lease, which is observed now.
func (s *scenario) renew(renewTime time.Time) *scenario {
	s.Activity = &Activity{RenewTime: renewTime, ObservedTime: s.Now, CreationTime: testStartTime}
	return s
}

// wantStoppedWhenIdleFor checks that the session is stopped after this time, and not before.
func (s *scenario) wantStoppedWhenIdleFor(d time.Duration) {
	s.t.Helper()
	due := s.Now.Add(d)
	for s.Now.Before(due) {
		decision := s.wantPhase(v1alpha1.SessionRunning, "")
		require.True(s.t, decision.RequeueAfter > 0 && decision.RequeueAfter <= activityPrecision, "decides again after %s", decision.RequeueAfter)
		s.advanceClock(min(decision.RequeueAfter, due.Sub(s.Now)))
	}
	s.wantPhase(v1alpha1.SessionStopping, "")
	require.Equal(s.t, v1alpha1.StopInactivity, s.Session.Status.StoppedReason)
}

func TestInactivityCountsFromWhenTheLeaseChangedNotFromTheTimeInIt(t *testing.T) {
	for _, renewTime := range []time.Time{time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), testStartTime.Add(5 * time.Minute), time.Unix(0, 0)} {
		t.Run(renewTime.String(), func(t *testing.T) {
			s := newIdleScenario(t)
			s.advanceClock(5*time.Minute).renew(renewTime).wantPhase(v1alpha1.SessionRunning, "")
			s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
			s.advanceClock(5*time.Minute).wantPhase(v1alpha1.SessionRunning, "")
			s.renew(renewTime.Add(time.Second)).wantStoppedWhenIdleFor(10 * time.Minute)
		})
	}
}

func TestSessionWhoseLeaseWasNeverRenewedIsNotStoppedAsIdle(t *testing.T) {
	s := newIdleScenario(t)
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonActivityUnknown)
	s.advanceClock(24*time.Hour).wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonActivityUnknown)
	require.True(t, s.Session.Status.Attempt.LastActivityTime == nil, "an activity is recorded")
	s.updateSpec(withMaxCost("10")).decideAndRecord()
	for _, limit := range []string{"maxCostUSD", "inactivityTimeout"} {
		require.Contains(t, s.findCondition(v1alpha1.ConditionRunnerReporting).Message, limit)
	}
	s.renew(s.Now).wantStoppedWhenIdleFor(10 * time.Minute)
}

func TestRenewalsOfEarlierAttemptsDoNotCount(t *testing.T) {
	s := newIdleScenario(t)
	s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
	s.renew(s.Now.Add(time.Second)).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.updateSpec(requestNextRun).startAttempt().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonActivityUnknown)
	s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionRunning, "")
}

// The restarted operator observes the Lease for the first time, but knows its content.
func TestInactivityCountsOnAfterARestartOfTheOperator(t *testing.T) {
	s := newIdleScenario(t)
	s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
	s.advanceClock(9 * time.Minute)
	s.Activity.ObservedTime = s.Now
	s.wantStoppedWhenIdleFor(time.Minute)
}

func TestReportsAreRecordedAtMostOnceAMinute(t *testing.T) {
	for title, report := range map[string]func(s *scenario, i int){
		"activity": func(s *scenario, _ int) { s.renew(s.Now) },
		"cost":     func(s *scenario, i int) { s.reportCost(fmt.Sprintf("%d.%02d", i/100, i%100)) },
	} {
		s, writes := newIdleScenario(t).updateSpec(withMaxCost("100")), 0
		for i := range 600 {
			before := s.Session
			report(s.advanceClock(time.Second), i)
			decision := s.decideAndRecord()
			if decision.ChangesStatus(before) {
				writes++
			}
			isRecorded := s.Activity.Cost.USD == ptr.Deref(decision.Status.Attempt.CostUSD, "")
			require.True(t, isRecorded || decision.RequeueAfter > 0, "nothing records the %s later", title)
		}
		require.True(t, writes >= 9 && writes <= 11, "%s: %d writes in 10 minutes", title, writes)
		s.renew(s.Now).wantStoppedWhenIdleFor(10 * time.Minute)
	}
}

// The runner cannot delete its Lease. While it does not exist, the runner can report nothing.
func TestDeletedLeaseDoesNotStopASession(t *testing.T) {
	for _, missing := range []time.Duration{0, time.Hour} {
		s := newIdleScenario(t)
		s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
		s.advanceClock(time.Minute).Activity = nil
		if missing > 0 {
			s.advanceClock(missing).wantPhase(v1alpha1.SessionRunning, "")
		}
		s.Activity = &Activity{CreationTime: s.Now}
		s.wantStoppedWhenIdleFor(10 * time.Minute)
	}
}

func TestAnIdleSessionStopsAtTheLowerLimit(t *testing.T) {
	check := func(title string, session, runner *v1alpha1.Duration, want time.Duration) {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = session })
			s.Runner.Spec.ActivityLease, s.Runner.Spec.Limits.InactivityTimeout = true, runner
			s.startAttempt().Activity = &Activity{CreationTime: s.Now}
			s.startRunner().renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
			s.Runner.Spec.Limits.InactivityTimeout = seconds(1) // for the next attempt
			if want > 0 {
				s.wantStoppedWhenIdleFor(want)
				return
			}
			s.advanceClock(3*time.Hour).wantPhase(v1alpha1.SessionRunning, "")
		})
	}
	check("only the SessionRunner has a limit", nil, seconds(600), 10*time.Minute)
	check("the session asks for no limit", seconds(0), seconds(600), 10*time.Minute)
	check("the session has a lower limit", seconds(300), seconds(600), 5*time.Minute)
	check("the session has a higher limit", seconds(1200), seconds(600), 10*time.Minute)
	check("the SessionRunner asks for no limit", seconds(600), seconds(0), 10*time.Minute)
	check("neither has a limit", nil, nil, 0)
	check("both ask for no limit", seconds(0), seconds(0), 0)
	check("the limit is shorter than its precision", nil, seconds(30), 30*time.Second)
}

// A SessionRunner that gets activityLease later changes the next attempt: the Pod of this one has no token.
func TestAttemptWithoutALeaseHasNoInactivityLimit(t *testing.T) {
	s := newRunningScenario(t)
	s.Runner.Spec.ActivityLease = true
	s.updateSpec(func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(60) })
	s.renew(s.Now).advanceClock(time.Hour).wantPhase(v1alpha1.SessionRunning, "")
}

func withMaxCost(dollars v1alpha1.Number) func(spec *v1alpha1.AgenticSessionSpec) {
	return func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.MaxCostUSD = &dollars }
}

// newReportingScenario returns a session whose runner has a Lease and just started.
func newReportingScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newScenario(t, change...)
	s.Runner.Spec.ActivityLease = true
	s.startAttempt().Activity = &Activity{CreationTime: s.Now}
	s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
	return s
}

// reportCost sets the cost that the runner of the open attempt writes into its Lease.
func (s *scenario) reportCost(dollars string) *scenario {
	return s.writeCost(s.Session.Status.Attempt.JobName + "=" + dollars)
}

func (s *scenario) writeCost(annotation string) *scenario {
	activity := ptr.Deref(s.Activity, Activity{})
	activity.Cost = activity.Cost.Next(annotation)
	s.Activity = &activity
	return s
}

func (s *scenario) wantTotalCost(want v1alpha1.Number) {
	s.t.Helper()
	require.Equal(s.t, want, ptr.Deref(s.Session.Status.TotalCostUSD, "unknown"))
}

func TestSessionIsStoppedWhenItsReportedCostReachesTheLimit(t *testing.T) {
	for title, test := range map[string]struct{ spec, runner v1alpha1.Number }{
		"the limit of the session":         {"2", ""},
		"the limit of the SessionRunner":   {"", "2"},
		"a higher one does not apply":      {"3", "2"},
		"a session can lower it":           {"2", "30"},
		"a limit of millionths of dollars": {"1.999999", ""},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, withRetryLimit(5))
			if test.spec != "" {
				s.Session.Spec.Limits.MaxCostUSD = &test.spec
			}
			if test.runner != "" {
				s.Runner.Spec.Limits.MaxCostUSD = &test.runner
			}
			s.Runner.Spec.ActivityLease = true
			s.startAttempt().startRunner().reportCost("1.999998").wantPhase(v1alpha1.SessionRunning, "")
			s.reportCost("2.25")
			decision := s.wantPhase(v1alpha1.SessionStopping, "")
			require.True(t, len(decision.DeleteJobs) == 1 && s.Session.Status.StoppedReason == v1alpha1.StopBudgetExceeded, "%+v", decision)
			s.markJobDeleted().reportCost("2.5").wantPhase(v1alpha1.SessionStopping, "")
			s.removeJobAndPod().wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
			s.wantEvent(v1alpha1.EventBudgetExceeded)
			s.wantTotalCost("2.5")
			run := s.Session.Status.Attempts[0]
			require.True(t, *run.CostUSD == "2.5" && strings.Contains(run.Message, "increase maxCostUSD of"), "%+v", run)
		})
	}
}

func TestNoRunStartsBeyondTheCostLimitUntilItIsIncreased(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("1")).exitRunner(0, `{"costUSD": 2}`)
	s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
	s.wantTotalCost("2") // once, although one decision ends a run and refuses the next one
	s = newReportingScenario(t, withMaxCost("1")).reportCost("1.5")
	s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "") // it ended before it was stopped
	require.True(t, s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded).CreateJob == nil, "a Job is created")
	s.updateSpec(requestNextRun).updateSpec(withMaxCost("1.5")).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
	s.updateSpec(requestNextRun).updateSpec(withMaxCost("2")).startAttempt().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	s.reportCost("0.5").wantPhase(v1alpha1.SessionStopping, "")
}

func TestRetryThatWaitsFailsWhenTheCostLimitIsLowered(t *testing.T) {
	s := newReportingScenario(t, withRetryLimit(5), withMaxCost("10"))
	s.exitRunner(1, `{"costUSD": 5}`).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
	s.updateSpec(withMaxCost("3")).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
}

func TestResultCountsIfItIsHigherThanTheReportedCost(t *testing.T) {
	for result, want := range map[string]v1alpha1.Number{
		`{"costUSD": 3}`: "3", `{"costUSD": 1}`: "2", `{}`: "2", `{"costUSD": -1}`: "2", `broken`: "2", ``: "2",
	} {
		s := newReportingScenario(t).reportCost("2")
		s.exitRunner(0, result).reconcile().wantTotalCost(want)
		cost := s.Session.Status.Attempts[0].CostUSD
		require.True(t, cost != nil && *cost == want, "the run cost %v dollars with the result %q, want %s", cost, result, want)
	}
}

func TestReportsOfOtherAttemptsDoNotCount(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("10")).reportCost("4")
	s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.updateSpec(requestNextRun).startAttempt().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("4")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
	s.writeCost("fix-r1-a1=9").writeCost(strings.Repeat("x", maxCostReportBytes-2)+"=9").wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("4")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
	s.reportCost("5.5").wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("9.5")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
}

func TestHostileCostReportsAreRefusedAndChangeNothing(t *testing.T) {
	for _, report := range []string{
		"fix-r1-a1=-1", "fix-r1-a1=NaN", "fix-r1-a1=Inf", "fix-r1-a1=+1", "fix-r1-a1=1e3", "fix-r1-a1=0x10", "fix-r1-a1=1,5", "fix-r1-a1=",
		"fix-r1-a1=1000000001", "fix-r1-a1=99999999999", "fix-r1-a1= 1", "fix-r1-a1=1\n", "fix-r1-a1", "=5", "5", "{}", "\x00", strings.Repeat("9", 300000),
		"fix-r1-a1=0." + strings.Repeat("0", 200), "fix-r1-a1=.5", "fix-r1-a1=5.", "fix-r1-a1=1=2", strings.Repeat("x", maxCostReportBytes-1) + "=1",
	} {
		s := newIdleScenario(t).updateSpec(withMaxCost("10")).reportCost("4")
		s.wantPhase(v1alpha1.SessionRunning, "")
		s.writeCost(report).wantPhase(v1alpha1.SessionRunning, "")
		s.wantTotalCost("4")
		s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionFalse, v1alpha1.ReasonCostMalformed)
		s.reportCost("5").advanceClock(CostRecordInterval).wantPhase(v1alpha1.SessionRunning, "")
		s.wantTotalCost("5")
		s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonActivityUnknown) // less bad than a malformed cost
		s.renew(s.Now).reportCost("5").wantPhase(v1alpha1.SessionRunning, "")
		s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
	}
}

func TestDecreasingCostReportRefundsNothing(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("10"))
	for _, dollars := range []string{"4", "3", "0", "4"} {
		s.reportCost(dollars).advanceClock(CostRecordInterval).wantPhase(v1alpha1.SessionRunning, "")
		s.wantTotalCost("4")
	}
	s.reportCost("4.5").wantPhase(v1alpha1.SessionRunning, "")
	s.reportCost("7").reportCost("5").advanceClock(CostRecordInterval).wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("7")     // although it was not recorded before the runner reported less
	s.Activity = &Activity{} // the operator restarted and remembers nothing, and the runner reports less
	s.reportCost("1").advanceClock(CostRecordInterval).wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("7")
}

func TestUnknownCostIsReportedAndNotTakenForZero(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("10"))
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
	s.advanceClock(time.Hour).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.reconcile().wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown) // it stays reported
	require.Contains(t, s.findCondition(v1alpha1.ConditionRunnerReporting).Message, "it must set the annotation "+AnnotationCost)
	require.True(t, s.Session.Status.TotalCostUSD == nil && s.Session.Status.Attempts[0].CostUSD == nil, "an unknown cost is recorded")
	withoutLease := newScenario(t, withMaxCost("10")).startAttempt().startRunner()
	withoutLease.wantPhase(v1alpha1.SessionRunning, "")
	withoutLease.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
	require.Contains(t, withoutLease.findCondition(v1alpha1.ConditionRunnerReporting).Message, "set activityLease in its SessionRunner")
	withoutLease.exitRunner(0, `{"costUSD": 0}`).wantPhase(v1alpha1.SessionCompleted, "")
	withoutLease.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
	withoutLease.wantTotalCost("0")
}

// costRun is a session whose runner reports random costs.
type costRun struct {
	*scenario

	rng   *rand.Rand
	seed  uint64
	limit int64
}

// Runners report anything, at any time, and the operator restarts. The bound is exact: no attempt starts at the limit, and an
// attempt is stopped as soon as a report reaches it. So the total exceeds the limit by at most what the last report added.
func TestFuzzedCostNeverExceedsTheLimitByMoreThanTheLastReport(t *testing.T) {
	exceeded := 0
	for seed := range uint64(300) {
		r := &costRun{rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, limit: 1_000_000}
		r.scenario = newScenario(t, withRetryLimit(5), withMaxCost("1"), func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = seconds(0) })
		r.Runner.Spec.ActivityLease = true
		for range 80 {
			r.step()
		}
		if microsOf(r.Session.Status.TotalCostUSD) >= r.limit {
			exceeded++
		}
	}
	require.True(t, exceeded >= 100, "only %d of 300 sessions reached the limit", exceeded)
}

func (r *costRun) step() {
	before := r.Session.Status.DeepCopy()
	if r.Session.Status.Attempt.JobName != "" && len(r.Jobs) > 0 {
		r.disturb()
	}
	decision := r.advanceClock(time.Duration(r.rng.IntN(90)) * time.Second).decideAndRecord()
	after := &r.Session.Status
	total, last := microsOf(after.TotalCostUSD), microsOf(before.TotalCostUSD)
	isOver, isStopped := total >= r.limit, after.Attempt.JobName == "" || after.Attempt.StopTime != nil
	require.True(r.t, total >= last, "seed %d: the total decreased from %d to %d", r.seed, last, total)
	require.True(r.t, !isOver || decision.CreateJob == nil, "seed %d: an attempt starts at a cost of %d", r.seed, total)
	require.True(r.t, !isOver || isStopped, "seed %d: the runner is not stopped at a cost of %d", r.seed, total)
	require.True(r.t, total == last || last < r.limit || before.Attempt.StopTime != nil, "seed %d: a report counts after the limit: %d, %d", r.seed, last, total)
	if decision.CreateJob != nil {
		r.createPlannedJob(decision)
		r.startRunner()
	}
	if after.Attempt.JobName == "" && r.rng.IntN(4) == 0 {
		r.updateSpec(requestNextRun)
	}
}

// disturb reports a cost, ends the runner, or restarts the operator.
func (r *costRun) disturb() {
	switch action := r.rng.IntN(10); {
	case r.Session.Status.Attempt.StopTime != nil && action < 5:
		r.removeJobAndPod()
	case action < 6:
		r.reportCost(r.randomCost())
	case action < 7:
		r.writeCost(r.randomCost())
	case action < 8:
		r.Activity = &Activity{Cost: CostReport{}.Next(r.Session.Status.Attempt.JobName + "=" + r.randomCost())}
	case action < 9 && r.newestJob().Status.Conditions == nil:
		r.exitRunner(int32(r.rng.IntN(2)), fmt.Sprintf(`{"costUSD": %s}`, r.randomCost()))
	}
}

func (r *costRun) randomCost() string {
	if r.rng.IntN(3) == 0 {
		return []string{"-5", "NaN", "1e9", "999999999999", "0", "", "1000000000", "null", "0.0000001"}[r.rng.IntN(9)]
	}
	return string(formatDollars(r.rng.Int64N(400_000)))
}
