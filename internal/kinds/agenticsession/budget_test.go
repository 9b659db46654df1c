package agenticsession

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// jobDeadlineSeconds returns the deadline of the newest Job; -1 if it has none.
func (s *scenario) jobDeadlineSeconds() int64 {
	if deadline := s.newestJob().Spec.ActiveDeadlineSeconds; deadline != nil {
		return *deadline
	}
	return -1
}

// secondsLeft returns the deadline of the newest Job without what it has for its start.
func (s *scenario) secondsLeft() int64 {
	return s.jobDeadlineSeconds() - int64(startupAllowance/time.Second)
}

func seconds(number int) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Duration(number) * time.Second}}
}

func TestJobDeadlineIsTheRemainingTime(t *testing.T) {
	tests := map[string]struct {
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
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = test.timeout })
			s.Runner.Spec.Limits.Timeout = test.most
			s.startAttempt().advanceClock(20 * time.Minute)
			if got := s.secondsLeft(); got != test.want && test.want >= 0 {
				t.Errorf("deadline of %d seconds before the runner starts, want %d", got, test.want)
			}
			s.startRunner().decideAndRecord()
			want := test.want
			if want >= 0 {
				want += 20 * 60
			}
			if got := s.jobDeadlineSeconds(); got != want {
				t.Errorf("deadline of %d seconds, want %d", got, want)
			}
		})
	}
}

func TestTimeoutCountsAllRuns(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt().startRunner()
	s.advanceClock(30*time.Second).exitRunner(0, "").decideAndRecord()
	if got := s.updateSpec(requestNextRun).advanceClock(time.Hour).startAttempt().secondsLeft(); got != 70 {
		t.Fatalf("the second run has %d seconds, want 70", got)
	}
	s.startRunner().decideAndRecord()
	s.advanceClock(20500 * time.Millisecond).updateSpec(suspend).decideAndRecord()
	s.markJobDeleted().advanceClock(time.Second).removeJobAndPod().decideAndRecord()
	if got := s.updateSpec(resume).advanceClock(time.Hour).startAttempt().secondsLeft(); got != 48 {
		t.Fatalf("after a stop in the middle of a second it has %d seconds, want 48", got)
	}
	s.startRunner().decideAndRecord()
	s.advanceClock(48*time.Second).exitRunner(143, "").newestJob().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
	s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	s.wantEvent(v1alpha1.EventDeadlineExceeded)

	decision := s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	if decision.CreateJob != nil {
		t.Error("a Job is created without remaining time")
	}
	if got := s.updateSpec(withTimeout(160)).updateSpec(requestNextRun).startAttempt().secondsLeft(); got != 60 {
		t.Errorf("with a longer timeout it has %d seconds, want 60", got)
	}
}

func TestFailedRunIsNotRetriedWithoutRemainingTime(t *testing.T) {
	s := newScenario(t, withTimeout(60), withRetryLimit(5)).startAttempt().startRunner()
	s.advanceClock(60*time.Second).exitRunner(1, "").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
}

// However late the operator observes that a Job was deleted, only time in which the Job can have run
// counts.
func TestTimeAfterJobEndIsNotCounted(t *testing.T) {
	t.Run("after a stop", func(t *testing.T) {
		s := newScenario(t).startAttempt().startRunner()
		s.decideAndRecord()
		s.advanceClock(10 * time.Second).updateSpec(suspend).decideAndRecord()
		s.removeJobAndPod().advanceClock(24 * time.Hour).decideAndRecord()
		if got := s.Session.Status.ActiveDuration.Seconds(); got != 10+GracePeriodSeconds {
			t.Errorf("%v seconds, want 10 and a grace period of %d", got, GracePeriodSeconds)
		}
	})
	t.Run("after a Job was lost", func(t *testing.T) {
		s := newScenario(t, withTimeout(60)).startAttempt().startRunner()
		s.decideAndRecord()
		s.removeJobAndPod().advanceClock(24 * time.Hour).decideAndRecord()
		if got := s.Session.Status.ActiveDuration.Seconds(); got != 60 {
			t.Errorf("%v seconds, want the deadline of 60", got)
		}
	})
}

func TestRetryDelayDoublesEachTime(t *testing.T) {
	s := newScenario(t, withRetryLimit(5))
	for _, seconds := range []int{10, 20, 40, 80, 160} {
		want := time.Duration(seconds) * time.Second
		s.startAttempt().exitRunner(1, "")
		decision := s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
		if decision.RequeueAfter != want {
			t.Errorf("it is retried after %s, want %s", decision.RequeueAfter, want)
		}
		s.advanceClock(want)
	}
	s.startAttempt().exitRunner(1, "").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
	s.updateSpec(requestNextRun).startAttempt()
	if s.Session.Status.Retries != 0 {
		t.Error("the retries of the previous run count for the next run")
	}
}

func TestDisruptionsAreRetriedOnlyWithOnDisruption(t *testing.T) {
	s := newScenario(t, withRetryLimit(5)).startAttempt().startRunner()
	s.decideAndRecord()
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
	if !slices.Equal(deleted, []string{"fix-r1-a1", "fix-r2-a1"}) {
		t.Errorf("Jobs %v are deleted, want those of runs that are not recorded", deleted)
	}
	status := &s.Session.Status
	if len(status.Attempts) != maxRecordedRuns || status.Attempts[9].Run != 12 || status.Attempts[0].Run != 3 {
		t.Errorf("%+v", status.Attempts)
	}
	if status.ActiveDuration.Seconds() != 12 || *status.TotalCostUSD != "1.2" {
		t.Errorf("%v for %s dollars, want 12 for 1.2", status.ActiveDuration, *status.TotalCostUSD)
	}
}
