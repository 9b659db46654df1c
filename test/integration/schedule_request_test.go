package integration

import (
	"slices"
	"strings"
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

func TestRequestedRunsOfAForbidScheduleRunOneAfterAnother(t *testing.T) {
	t.Parallel()
	s := createSchedule(t, namespace(t), func(spec *v1alpha1.ScheduleSpec) {
		spec.Schedule, spec.ConcurrencyPolicy = "0 3,4,5 29 2 *", v1alpha1.ConcurrencyForbid
		spec.SuccessfulRunsHistoryLimit = new(int32(10))
	})
	s.change(func(spec *v1alpha1.ScheduleSpec) {
		spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "first"}, From: yesterday(9)}
	})
	first := s.waitForRunOf(yesterday(9))
	want := corev1.EnvVar{Name: "SCHEDULED_TIME", Value: yesterday(9).UTC().Format(time.RFC3339)}
	if env := first.waitForPod("load").Spec.Containers[0].Env; !slices.Contains(env, want) {
		t.Errorf("environment of the step: %v", env)
	}
	if got := first.sj.Annotations; got[v1alpha1.AnnotationRerunID] != "first" || got[v1alpha1.AnnotationScheduledTime] != want.Value {
		t.Errorf("annotations %v", got)
	}
	leapDay := time.Date(2024, time.February, 29, 0, 0, 0, 0, time.UTC)
	s.change(func(spec *v1alpha1.ScheduleSpec) {
		spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "backfill"}, From: new(metav1.NewTime(leapDay)), To: new(metav1.NewTime(leapDay.AddDate(0, 0, 1)))}
	})
	s.waitForReady(metav1.ConditionTrue, v1alpha1.ReasonWaitingForRun)
	first.succeedStep("load")
	for hour := 3; hour <= 4; hour++ {
		s.waitForRunOf(new(metav1.NewTime(leapDay.Add(time.Duration(hour) * time.Hour)))).succeedStep("load")
	}
	s.waitForRunOf(new(metav1.NewTime(leapDay.Add(5 * time.Hour))))
	status := s.waitUntil("all times to be counted", func(s *v1alpha1.Schedule) bool { return s.Status.Rerun.Runs == 3 }).Status
	if status.Rerun.Left != 0 || status.Rerun.Missed != 0 || status.Runs != 4 || len(s.runs()) != 4 {
		t.Errorf("%d runs, status %+v", len(s.runs()), status.Rerun)
	}
	s.change(func(spec *v1alpha1.ScheduleSpec) {
		spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "blocked"}}
	})
	s.waitUntil("the request to be accepted", func(s *v1alpha1.Schedule) bool { return s.Status.Rerun.ID == "blocked" })
	s.change(func(spec *v1alpha1.ScheduleSpec) { spec.Rerun = nil })
	s.waitUntil("the request to be withdrawn", func(s *v1alpha1.Schedule) bool {
		return s.Status.Rerun.Missed == 1 && s.Status.LastMissed.Reason == v1alpha1.MissedCanceled
	})
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := createSchedule(t, namespace(t))
	for title, test := range map[string]struct {
		request v1alpha1.ScheduleRerun
		want    string
	}{
		"an empty id":        {v1alpha1.ScheduleRerun{}, "spec.rerun.id"},
		"a range backwards":  {v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "1"}, From: yesterday(9), To: yesterday(8)}, "to must not be before from"},
		"no time":            {v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "1"}, From: new(metav1.Date(1, 1, 1, 0, 0, 1, 0, time.UTC))}, "from must not be before 1970"},
		"a range from never": {v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "1"}, To: yesterday(8)}, "to must not be before from"},
	} {
		changed := s.read().DeepCopy()
		changed.Spec.Rerun = &test.request
		if err := cluster.Update(t.Context(), changed); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", title, err, test.want)
		}
	}
}
