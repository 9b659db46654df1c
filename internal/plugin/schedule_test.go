package plugin

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

func nightlySchedule(changes ...func(*v1alpha1.Schedule)) *v1alpha1.Schedule {
	s := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: "a", UID: "uid-of-nightly"}}
	s.Spec.Schedule, s.Spec.TimeZone = "30 2 * * *", "Europe/Berlin"
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"load","image":"etl"}]}`)}}
	last, next := metav1.NewTime(testTime.Add(-time.Hour)), metav1.NewTime(testTime.Add(23*time.Hour))
	s.Status.LastScheduleTime, s.Status.NextScheduleTime, s.Status.Missed, s.Status.Active = &last, &next, 2, 1
	s.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonScheduled},
		{Type: v1alpha1.ConditionLastRunSucceeded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRunFailed},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func TestSchedules(t *testing.T) {
	invalid := func(s *v1alpha1.Schedule) { s.Spec.TimeZone = "Europe/Atlantis" }
	for title, row := range map[string]struct {
		args string
		s    *v1alpha1.Schedule
		code int
		want []string
	}{
		"a list has the last and next times": {
			"schedule list", nightlySchedule(), exitSuccess, []string{"nightly   30 2 * * *   Europe/Berlin   Scheduled   1", "60m    failed   23h    2"},
		},
		"the next times in the zone of the Schedule": {"schedule next nightly --count 2", nightlySchedule(), exitSuccess, []string{"02:30 CET", "01:30"}},
		"the next times of an invalid Schedule": {
			"schedule next nightly", nightlySchedule(invalid), exitError, []string{"schedule.yardmaster.dev/nightly: spec.timeZone is not the name of a time zone"},
		},
		"too many next times": {"schedule next nightly --count 1001", nightlySchedule(), exitError, []string{"--count is 1001, must be 1 to 1000"}},
	} {
		t.Run(title, func(t *testing.T) {
			code, out, errOut := runPlugin(t, row.args, row.s)
			require.Equal(t, row.code, code)
			for _, want := range row.want {
				require.True(t, strings.Contains(out+errOut, want), "missing %q:\n%s%s", want, out, errOut)
			}
		})
	}
}

func TestRunsAreRequestedInTheSchedule(t *testing.T) {
	at := func(text string) *metav1.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return new(metav1.NewTime(parsed))
	}
	inProgress := func(s *v1alpha1.Schedule) {
		s.Spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "6"}}
		s.Status.Rerun = &v1alpha1.ScheduleRerunStatus{Rerun: v1alpha1.Rerun{ID: "6"}, Left: 3}
	}
	notAccepted := func(s *v1alpha1.Schedule) {
		inProgress(s)
		s.Status.Rerun.ID = "5"
	}
	ended := func(s *v1alpha1.Schedule) {
		inProgress(s)
		s.Status.Rerun.Left = 0
	}
	for title, row := range map[string]struct {
		args     string
		change   func(*v1alpha1.Schedule)
		from, to *metav1.Time
		want     string
	}{
		"now":                            {"trigger nightly --id 7", ended, nil, nil, "schedule.yardmaster.dev/nightly triggered: request 7"},
		"a time":                         {"trigger nightly --id 7 --at 2026-02-28T01:30:00Z", ended, at("2026-02-28T01:30:00Z"), nil, "triggered"},
		"a time of the zone":             {"trigger nightly --id 7 --at 2026-02-28T02:30", ended, at("2026-02-28T01:30:00Z"), nil, "triggered"},
		"a time that has not come":       {"trigger nightly --id 7 --at 2031-02-28T01:30:00Z", ended, at("2031-02-28T01:30:00Z"), nil, "triggered: request 7, which waits until 2031-02-28T01:30:00Z"},
		"no time":                        {"trigger nightly --id 7 --at yesterday", ended, nil, nil, `invalid --at "yesterday": must be a time as`},
		"an id that was used":            {"trigger nightly --id 6", ended, nil, nil, `the last request had the id "6"; choose another with --id`},
		"beside a backfill":              {"trigger nightly --id 7", inProgress, nil, nil, "3 times of request 6 have not started; wait, or withdraw it with `schedule cancel nightly`"},
		"before the last one is seen":    {"trigger nightly --id 7", notAccepted, nil, nil, "request 6 has not been accepted yet"},
		"a backfill":                     {"backfill nightly --id 7 --from 2026-02-01 --to 2026-02-03", ended, at("2026-01-31T23:00:00Z"), at("2026-02-02T23:00:00Z"), "runs 2 times again: request 7"},
		"the times of a backfill":        {"backfill nightly --from 2026-02-01 --to 2026-02-03 --dry-run", inProgress, nil, nil, "Sun 2026-02-01 02:30 CET   2026-02-01 01:30\nMon 2026-02-02 02:30 CET   2026-02-02 01:30\n"},
		"a backfill backwards":           {"backfill nightly --from 2026-02-03 --to 2026-02-01", ended, nil, nil, "--to is before --from"},
		"a backfill of times to come":    {"backfill nightly --from 2026-02-03 --to 2027-02-01", ended, nil, nil, "--to has not come yet"},
		"a backfill without times":       {"backfill nightly --from 2026-02-01 --to 2026-02-01", ended, nil, nil, "no time of the timetable"},
		"a backfill with too many times": {"backfill nightly --from 2020-01-01 --to 2026-02-01", ended, nil, nil, "more than 1000 times are from --from to --to"},
	} {
		t.Run(title, func(t *testing.T) {
			c := newFakeClient(t, nightlySchedule(row.change))
			_, out, errOut := runPluginWith(t, "schedule "+row.args, c)
			require.True(t, strings.Contains(out+errOut, row.want), "missing %q:\n%s%s", row.want, out, errOut)
			s := &v1alpha1.Schedule{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "nightly"}, s))
			wantID := "6"
			if strings.Contains(out, "request 7") {
				wantID = "7"
			}
			got := s.Spec.Rerun
			require.True(t, got.ID == wantID && got.From.Equal(row.from) && got.To.Equal(row.to), "the request is %+v", got)
		})
	}
}

func TestARequestIsWithdrawn(t *testing.T) {
	c := newFakeClient(t, nightlySchedule(func(s *v1alpha1.Schedule) {
		s.Spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "6"}}
	}))
	for _, want := range []string{"schedule.yardmaster.dev/nightly has no request any more", "schedule.yardmaster.dev/nightly has no request"} {
		_, out, errOut := runPluginWith(t, "schedule cancel nightly", c)
		require.True(t, strings.HasPrefix(out, want), "stdout %q, stderr %q", out, errOut)
	}
}

func TestRunsOfAScheduleAreListedWithTheirDurations(t *testing.T) {
	run := func(name, scheduled, requestID string, status v1alpha1.SequentialJobStatus, owner *v1alpha1.Schedule) *v1alpha1.SequentialJob {
		sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", CreationTimestamp: metav1.NewTime(testTime.Add(-2 * time.Hour))}, Status: status}
		sj.Labels = map[string]string{v1alpha1.LabelSchedule: "nightly"}
		sj.Annotations = map[string]string{v1alpha1.AnnotationScheduledTime: scheduled}
		if requestID != "" {
			sj.Annotations[v1alpha1.AnnotationRerunID] = requestID
		}
		sj.OwnerReferences = decision.ControllerReferences("Schedule", owner)
		return sj
	}
	start, end := metav1.NewTime(testTime.Add(-time.Hour)), metav1.NewTime(testTime.Add(-time.Minute))
	failed := v1alpha1.SequentialJobStatus{Phase: v1alpha1.PhaseFailed, Reason: "StepFailed"}
	failed.StartTime, failed.CompletionTime = &start, &end
	running := v1alpha1.SequentialJobStatus{Phase: v1alpha1.PhaseRunning}
	running.StartTime = &start
	s := nightlySchedule()
	foreign := nightlySchedule(func(s *v1alpha1.Schedule) { s.UID = "other" })
	code, out, errOut := runPlugin(t, "schedule runs nightly", s,
		run("nightly-29529210", "2026-02-28T01:30:00Z", "", failed, s), run("nightly-0123456789", "2026-02-27T01:30:00Z", "again", running, s), run("foreign", "2026-02-27T01:30:00Z", "", running, foreign))
	for _, want := range []string{
		"nightly-29529210     Sat 2026-02-28 02:30 CET   -         Failed    StepFailed   59m", "nightly-0123456789   Fri 2026-02-27 02:30 CET   again     Running   -            1h0m0s",
	} {
		require.True(t, code == exitSuccess && strings.Contains(out, want) && !strings.Contains(out, "foreign"), "missing %q:\n%s%s", want, out, errOut)
	}
}
