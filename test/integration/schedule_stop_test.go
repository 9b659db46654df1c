package integration

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestWhenAndTooManyFailuresKeepTimesFromStarting(t *testing.T) {
	t.Parallel()
	s := createSchedule(t, namespace(t), func(spec *v1alpha1.ScheduleSpec) {
		spec.Schedule, spec.When, spec.SuspendAfterFailures = "0 * * * *; 30 * * * *", "scheduledTime.getFullYear() < 2000", new(int32(2))
	})
	s.makeDue(2)
	missed := s.waitUntil("the times to be missed", func(s *v1alpha1.Schedule) bool { return s.Status.Missed >= 4 }).Status
	if missed.LastMissed.Reason != v1alpha1.MissedWhenFalse || len(s.runs()) != 0 {
		t.Errorf("%d runs, missed %+v", len(s.runs()), missed.LastMissed)
	}
	s.change(func(spec *v1alpha1.ScheduleSpec) { spec.When = "runs[0].succeeded" })
	s.makeDue(1)
	s.waitForReady(metav1.ConditionFalse, v1alpha1.ReasonWhenFailed)

	s.change(func(spec *v1alpha1.ScheduleSpec) { spec.When = "" })
	trigger := func(id string) *sequenceTest {
		s.change(func(spec *v1alpha1.ScheduleSpec) { spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: id}} })
		var run v1alpha1.SequentialJob
		s.waitUntil("run "+id, func(schedule *v1alpha1.Schedule) bool {
			runs := s.runs()
			i := slices.IndexFunc(runs, func(run v1alpha1.SequentialJob) bool { return run.Annotations[v1alpha1.AnnotationRerunID] == id })
			if i >= 0 {
				run = runs[i]
			}
			return i >= 0 && len(schedule.Status.ActiveRuns) == 1 && schedule.Status.ActiveRuns[0].RerunID == id
		})
		return &sequenceTest{t, &run}
	}
	trigger("first").endStep("load", 1, "")
	s.waitUntil("the first failure", func(s *v1alpha1.Schedule) bool { return s.Status.Failures == 1 })
	trigger("second").endStep("load", 1, "")
	s.waitForReady(metav1.ConditionFalse, v1alpha1.ReasonTooManyFailures)
	before := s.read().Status
	s.makeDue(1)
	third := trigger("third") // the operator has observed the due times before
	if status := s.read().Status; status.Runs != before.Runs+1 || !status.Suspended {
		t.Errorf("status %+v, want only the triggered run", status)
	}
	third.succeedStep("load")
	s.waitForReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled)
	status := s.waitUntil("the times of the suspension to be missed", func(s *v1alpha1.Schedule) bool { return s.Status.Missed > before.Missed }).Status
	if status.Failures != 0 || status.LastMissed.Reason != v1alpha1.MissedSuspended || status.NextScheduleTime == nil {
		t.Errorf("status %+v", status)
	}
}
