package schedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

func stopAfter(failures int32) func(*v1alpha1.Schedule) {
	return func(s *v1alpha1.Schedule) { s.Spec.SuspendAfterFailures = &failures }
}

// failing returns a Schedule whose first two runs failed, and that has missed a time since.
func failing(t *testing.T) *scenario {
	s := newScenario(t, stopAfter(2)).at(time.Second)
	s.at(time.Hour).finish(3*time.Hour, false).at(2*time.Hour).finish(3*time.Hour, false).at(2*time.Hour + time.Minute)
	return s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonTooManyFailures, "2 runs in a row failed").at(3 * time.Hour)
}

func (s *scenario) suspend(suspended bool) *scenario {
	s.schedule.Spec.Suspend = suspended
	return s
}

func TestNoTimeStartsAfterTooManyFailuresUntil(t *testing.T) {
	const soon, later = 3*time.Hour + time.Minute, 3*time.Hour + 2*time.Minute
	for title, test := range map[string]struct {
		act func(s *scenario)
		// started is the number of runs after the time that follows.
		started int
	}{
		"nobody acts":           {func(*scenario) {}, 2},
		"a triggered run fails": {func(s *scenario) { s.request("1").at(soon).finish(3*time.Hour, false).at(later) }, 3},
		"a backfill is waiting": {func(s *scenario) { s.request("1", 1, 2).at(soon) }, 2},
		"the template changes":  {func(s *scenario) { s.schedule.Generation++; s.at(soon) }, 2},
		"a triggered run works": {func(s *scenario) { s.request("1").at(soon).finish(3*time.Hour, true).at(later) }, 4},
		"it is resumed":         {func(s *scenario) { s.suspend(true).at(soon).suspend(false).at(later) }, 3},
		"the limit is higher":   {func(s *scenario) { *s.schedule.Spec.SuspendAfterFailures = 3; s.at(soon) }, 3},
		"the limit is removed":  {func(s *scenario) { s.schedule.Spec.SuspendAfterFailures = nil; s.at(soon) }, 3},
	} {
		t.Run(title, func(t *testing.T) {
			s := failing(t)
			test.act(s)
			s.at(4 * time.Hour)
			assert.Equal(t, "number of runs that started", test.started, len(s.started))
			if resumed := s.schedule.Status.Missed > 0; resumed && s.schedule.Status.LastMissed.Reason != v1alpha1.MissedSuspended {
				t.Errorf("missed %+v, want the time of the suspension", s.schedule.Status.LastMissed)
			}
		})
	}
}

func TestASuccessEndsTheCountOfFailures(t *testing.T) {
	s := newScenario(t, stopAfter(2)).at(time.Second)
	for hour, succeeds := range []bool{false, true, false, true, false} {
		s.at(time.Duration(hour+1)*time.Hour).finish(time.Duration(hour+1)*time.Hour, succeeds)
	}
	s.at(6*time.Hour).wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")
	assert.Equal(t, "status.failures, only that of the last run", int32(1), s.schedule.Status.Failures)
}

// A run may end before the operator observes that it exists, and may be deleted by the history limits right after it was counted.
func TestARunThatEndsAtOnceCountsOnce(t *testing.T) {
	s := newScenario(t, stopAfter(10), func(s *v1alpha1.Schedule) { s.Spec.FailedRunsHistoryLimit = new(int32(0)) }).at(time.Second)
	for hour := range 3 {
		now := created.Add(time.Duration(hour+1) * time.Hour)
		d := Decide(Observation{Schedule: s.schedule, Runs: s.runs, Now: now})
		s.runs = append(s.runs, Run{
			Name: d.CreateRun.Name, ScheduledTime: d.CreateRun.ScheduledTime.Time, CreationTime: now, IsFinished: true, CompletionTime: now,
		})
		s.at(now.Sub(created) + time.Second).at(now.Sub(created) + time.Minute)
	}
	got := s.schedule.Status.Failures
	require.True(t, got == 3 && len(s.runs) == 0, "status.failures is %d after 3 failures, and %d runs are kept", got, len(s.runs))
}
