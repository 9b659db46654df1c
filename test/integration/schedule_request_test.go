package integration

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func yesterday(hour int) *metav1.Time {
	day := time.Now().UTC().AddDate(0, 0, -1).Truncate(24 * time.Hour)
	return new(metav1.NewTime(day.Add(time.Duration(hour) * time.Hour)))
}

// waitForRunOf waits for the only active run, and returns it if it is of this time.
func (s *scheduleTest) waitForRunOf(due *metav1.Time) *sequenceTest {
	s.t.Helper()
	var name string
	s.waitUntil("a run of "+due.UTC().Format(time.RFC3339), func(s *v1alpha1.Schedule) bool {
		if len(s.Status.ActiveRuns) != 1 || !s.Status.ActiveRuns[0].ScheduledTime.Equal(due) {
			return false
		}
		name = s.Status.ActiveRuns[0].Name
		return true
	})
	runs := s.runs()
	i := slices.IndexFunc(runs, func(run v1alpha1.SequentialJob) bool { return run.Name == name })
	if i < 0 {
		s.t.Fatalf("no run %s", name)
	}
	return &sequenceTest{s.t, &runs[i]}
}

func TestARequestedRunHasItsTimeAndItsFailureStopsTheSchedule(t *testing.T) {
	t.Parallel()
	s := createSchedule(t, namespace(t), func(spec *v1alpha1.ScheduleSpec) {
		spec.Schedule, spec.SuspendAfterFailures = "0 3 29 2 *", new(int32(1)) // not due during the test
	})
	s.change(func(spec *v1alpha1.ScheduleSpec) {
		spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "first"}, From: yesterday(9)}
	})
	run := s.waitForRunOf(yesterday(9))
	want := corev1.EnvVar{Name: "SCHEDULED_TIME", Value: yesterday(9).UTC().Format(time.RFC3339)}
	if env := run.waitForPod("load").Spec.Containers[0].Env; !slices.Contains(env, want) {
		t.Errorf("environment of the step: %v", env)
	}
	if got := run.sj.Annotations; got[v1alpha1.AnnotationRerunID] != "first" || got[v1alpha1.AnnotationScheduledTime] != want.Value {
		t.Errorf("annotations %v", got)
	}
	run.endStep("load", 1, "")
	s.waitForReady(metav1.ConditionFalse, v1alpha1.ReasonTooManyFailures)
}
