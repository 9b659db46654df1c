package agenticsession

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// wait lets time pass as long as a Pod waits, and does what the operator decides meanwhile.
func (s *scenario) wait(d time.Duration) *scenario {
	s.t.Helper()
	for end := s.Now.Add(d); s.Now.Before(end); {
		decision := s.decideAndRecord()
		require.True(s.t, decision.RequeueAfter > 0, "nothing reconciles the waiting session")
		s.advanceClock(min(decision.RequeueAfter, end.Sub(s.Now)))
		require.True(s.t, s.newestJob().Status.StartTime.Add(time.Duration(s.jobDeadlineSeconds())*time.Second).After(s.Now),
			"the deadline of the waiting Job is over")
	}
	return s
}

func TestTimeoutDoesNotCountWhileThePodWaits(t *testing.T) {
	for title, change := range map[string]func(spec *v1alpha1.AgenticSessionSpec){
		"a session":              func(*v1alpha1.AgenticSessionSpec) {},
		"an interactive session": setInteractive,
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, withTimeout(100), change).startAttempt()
			s.newestPod().Spec.NodeName = ""
			s.wait(30 * time.Hour).startRunner().decideAndRecord()
			s.wantDeadline(30*60*60 + 100)
			s.advanceClock(40*time.Second).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
			s.wantActiveSeconds(40)
		})
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
	for _, change := range []struct {
		timeout int
		want    int64
	}{{200, 210}, {50, 60}, {0, -1}, {7200, 7210}} {
		s.updateSpec(withTimeout(change.timeout)).wantPhase(v1alpha1.SessionRunning, "")
		s.wantDeadline(change.want)
		require.True(t, s.decideAndRecord().SetDeadline == nil, "the deadline is set again")
	}
}

func TestChangedSessionRunnerDoesNotChangeTheLimitsOfARunningAttempt(t *testing.T) {
	for title, change := range map[string]func(s *scenario){
		"deleted":        func(s *scenario) { s.Runner = nil },
		"limits removed": func(s *scenario) { s.Runner.Spec.Limits = v1alpha1.SessionRunnerLimits{} },
		"limits raised": func(s *scenario) {
			s.Runner.Spec.Limits.Timeout, s.Runner.Spec.Limits.MaxCostUSD = seconds(1000), new(v1alpha1.Number("100"))
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t)
			s.Runner.Spec.ActivityLease, s.Runner.Spec.Limits.Timeout, s.Runner.Spec.Limits.MaxCostUSD = true, seconds(30), new(v1alpha1.Number("1"))
			s.startAttempt()
			change(s)
			s.startRunner().decideAndRecord()
			s.wantDeadline(30)
			s.reportCost("1").wantPhase(v1alpha1.SessionStopping, "")
		})
	}
}

// The node's clock may be wrong: a session neither gets time for that, nor loses more than it waited.
func TestStartOnAWrongClockIsWithinTheJob(t *testing.T) {
	for title, test := range map[string]struct {
		wrong time.Duration
		want  int64
	}{"ahead": {time.Hour, 160}, "behind": {-time.Hour, 100}} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, withTimeout(100)).startAttempt().advanceClock(time.Minute).startRunner()
			running := s.newestRunnerStatus().State.Running
			running.StartedAt.Time = running.StartedAt.Add(test.wrong)
			s.decideAndRecord()
			s.wantDeadline(test.want)
		})
	}
}

// A Pod that no operator observed may have run all the time.
func TestTimeOfAnUnobservedPodCounts(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt()
	s.decideAndRecord()
	s.removeJobAndPod().advanceClock(time.Hour).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPodLost)
	s.wantActiveSeconds(100)
}

func TestPodThatWaitedUntilTheDeadlineUsedNoTime(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt()
	s.decideAndRecord()
	s.advanceClock(2*time.Hour).endJob(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	s.newestPod().Status.Phase = corev1.PodFailed
	s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	s.wantActiveSeconds(0)
	s.updateSpec(requestNextRun).startAttempt()
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
	for title, test := range map[string]struct {
		timeout *v1alpha1.Duration
		most    *v1alpha1.Duration
		want    int64
	}{
		"the default is 4 hours":                             {nil, nil, 14400},
		"timeout":                                            {seconds(60), nil, 60},
		"timeout 0 means no deadline":                        {seconds(0), nil, -1},
		"a lower limit of the SessionRunner applies":         {seconds(60), seconds(30), 30},
		"a higher limit of the SessionRunner does not apply": {seconds(60), seconds(90), 60},
		"timeout 0 is limited by the SessionRunner":          {seconds(0), seconds(30), 30},
		"a SessionRunner's limit of 0 does not apply":        {seconds(60), seconds(0), 60},
		"the default is limited by the SessionRunner":        {nil, seconds(30), 30},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = test.timeout })
			s.Runner.Spec.Limits.Timeout = test.most
			s.startAttempt().advanceClock(20 * time.Minute)
			got := s.secondsLeft()
			require.True(t, got == test.want || test.want < 0, "deadline of %d seconds before the runner starts, want %d", got, test.want)
			s.startRunner().decideAndRecord()
			want := test.want
			if want >= 0 {
				want += 20 * 60
			}
			s.wantDeadline(want)
		})
	}
}

func TestTimeoutCountsAllRuns(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt().startRunner()
	s.advanceClock(30*time.Second).exitRunner(0, "").decideAndRecord()
	require.Equal(t, 70, s.updateSpec(requestNextRun).advanceClock(time.Hour).startAttempt().secondsLeft())
	s.startRunner().decideAndRecord()
	s.advanceClock(20500 * time.Millisecond).updateSpec(suspend).decideAndRecord()
	s.markJobDeleted().advanceClock(time.Second).removeJobAndPod().decideAndRecord()
	require.Equal(t, 48, s.updateSpec(resume).advanceClock(time.Hour).startAttempt().secondsLeft())
	s.startRunner().decideAndRecord()
	s.advanceClock(48*time.Second).exitRunner(143, "").newestJob().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
	s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	s.wantEvent(v1alpha1.EventDeadlineExceeded)

	decision := s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	require.True(t, decision.CreateJob == nil, "a Job is created without remaining time")
	require.Equal(t, 60, s.updateSpec(withTimeout(160)).updateSpec(requestNextRun).startAttempt().secondsLeft())
}

func TestFailedRunIsNotRetriedWithoutRemainingTime(t *testing.T) {
	s := newScenario(t, withTimeout(60), withRetryLimit(5)).startAttempt().startRunner()
	s.advanceClock(60*time.Second).exitRunner(1, "").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
}

// However late the operator observes that a Job was deleted, only time in which the Job can have run
// counts.
func TestTimeAfterJobEndIsNotCounted(t *testing.T) {
	for title, stop := range map[string]bool{"after a stop": true, "after a Job was lost": false} {
		t.Run(title, func(t *testing.T) {
			s, want := newScenario(t, withTimeout(60)).startAttempt().startRunner(), 60
			s.decideAndRecord()
			if stop {
				s.advanceClock(10 * time.Second).updateSpec(suspend).decideAndRecord()
				want = 10 + GracePeriodSeconds
			}
			s.removeJobAndPod().advanceClock(24 * time.Hour).decideAndRecord()
			s.wantActiveSeconds(float64(want))
		})
	}
}

func TestRetryDelayDoublesEachTimeOrGrowsByItsFactor(t *testing.T) {
	for title, row := range map[string]struct {
		retry  v1alpha1.Retry
		delays []int
	}{
		"by default":   {v1alpha1.Retry{}, []int{10, 20, 40, 80, 160}},
		"of its field": {v1alpha1.Retry{Backoff: seconds(60), Factor: new(v1alpha1.Number("3"))}, []int{60, 180}},
	} {
		t.Run(title, func(t *testing.T) {
			row.retry.Limit = new(int32(len(row.delays)))
			s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Retry = &v1alpha1.SessionRetry{Retry: row.retry} })
			for _, delay := range row.delays {
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
	require.True(t, slices.Equal(deleted, []string{"fix-r1-a1", "fix-r2-a1"}),
		"Jobs %v are deleted, want those of runs that are not recorded", deleted)
	status := &s.Session.Status
	require.True(t, len(status.Attempts) == maxRecordedRuns && status.Attempts[9].Run == 12 && status.Attempts[0].Run == 3, "%+v", status.Attempts)
	require.True(t, status.ActiveDuration.Seconds() == 12 && *status.TotalCostUSD == "1.2",
		"%v for %s dollars, want 12 for 1.2", status.ActiveDuration, *status.TotalCostUSD)
}
