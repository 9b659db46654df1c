package schedule

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// withTemplate returns a Schedule of SequentialJobs or AgenticSessions with this spec.
func withTemplate(kind, raw string) *v1alpha1.Schedule {
	return newSchedule(func(s *v1alpha1.Schedule) {
		s.Spec.SequentialJob.Spec.Raw = []byte(raw)
		if kind == "AgenticSession" {
			s.Spec.SequentialJob, s.Spec.AgenticSession = nil, s.Spec.SequentialJob
		}
	})
}

func TestRunsHaveTheSpecOfTheTemplateAndTheirTime(t *testing.T) {
	due := created.Add(time.Hour)
	const parameter, variable = `{"name":"SCHEDULED_TIME","value":"2026-05-04T13:00:00Z"}`, `{"SCHEDULED_TIME":"2026-05-04T13:00:00Z"}`
	for title, test := range map[string]struct{ kind, template, want string }{
		"a sequence": {"SequentialJob", `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"a"}],"parameters":[` + parameter + `]}`},
		"a sequence with parameters": {
			"SequentialJob", `{"parameters":[{"name":"REGION","value":"eu"}]}`, `{"parameters":[{"name":"REGION","value":"eu"},` + parameter + `]}`,
		},
		"a sequence with a parameter of that name": {
			"SequentialJob", `{"parameters":[{"name":"SCHEDULED_TIME","value":"now"}]}`, `{"parameters":[{"name":"SCHEDULED_TIME","value":"now"}]}`,
		},
		"a session": {
			"AgenticSession", `{"prompt":"review","timeout":1800}`, `{"environmentVariables":` + variable + `,"prompt":"review","timeout":1800}`,
		},
		"a session with a variable of that name": {
			"AgenticSession", `{"environmentVariables":{"SCHEDULED_TIME":"now"}}`, `{"environmentVariables":{"SCHEDULED_TIME":"now"}}`,
		},
		"whole numbers stay whole": {
			"AgenticSession", `{"a":9007199254740993,"b":1e3,"c":0.5}`, `{"a":9007199254740993,"b":1000,"c":0.5,"environmentVariables":` + variable + `}`,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := withTemplate(test.kind, test.template)
			run, err := NewRun(s, &v1alpha1.ScheduledRun{Name: "run", ScheduledTime: apiTime(due), RerunID: "yesterday"})
			require.NoError(t, err)
			spec, err := json.Marshal(run.Object["spec"])
			require.NoError(t, err)
			assert.Equal(t, "spec", test.want, string(spec))
			require.True(t, run.GetKind() == test.kind && metav1.IsControlledBy(run, s) && run.GetLabels()[v1alpha1.LabelSchedule] == s.Name,
				"metadata: %v", run.Object["metadata"])
			want := map[string]string{v1alpha1.AnnotationScheduledTime: "2026-05-04T13:00:00Z", v1alpha1.AnnotationRerunID: "yesterday"}
			assert.Equal(t, "annotations", want, run.GetAnnotations())
		})
	}
}

func TestInvalidTemplatesAreRefused(t *testing.T) {
	for title, test := range map[string]struct {
		s    *v1alpha1.Schedule
		want string
	}{
		"a spec that is no object":   {withTemplate("SequentialJob", `["a"]`), "spec.sequentialJob.spec"},
		"a short time to live":       {withTemplate("AgenticSession", `{"ttlSecondsAfterFinished": 59}`), "spec.agenticSession.spec.ttlSecondsAfterFinished: Invalid value: 59: must be at least 60"},
		"a reserved label":           {newSchedule(setMetadata("yardmaster.dev/step", "")), "spec.sequentialJob.metadata.labels[yardmaster.dev/step]: Forbidden: is reserved"},
		"a reserved annotation":      {newSchedule(setMetadata("", "yardmaster.dev/scheduled-time")), "spec.sequentialJob.metadata.annotations[yardmaster.dev/scheduled-time]: Forbidden"},
		"the label of the tool":      {newSchedule(setMetadata("app.kubernetes.io/managed-by", "")), "is reserved"},
		"an invalid cron expression": {newSchedule(func(s *v1alpha1.Schedule) { s.Spec.Schedule = "0 25 * * *" }), "spec.schedule: Invalid value"},
	} {
		t.Run(title, func(t *testing.T) { require.ErrorContains(t, Validate(test.s).ToAggregate(), test.want) })
	}
	require.NoError(t, Validate(withTemplate("SequentialJob", `{"ttlSecondsAfterFinished": 60}`)).ToAggregate())
}

func setMetadata(label, annotation string) func(*v1alpha1.Schedule) {
	return func(s *v1alpha1.Schedule) {
		m := &v1alpha1.ObjectMetadata{Labels: map[string]string{}, Annotations: map[string]string{}}
		if label != "" {
			m.Labels[label] = "x"
		}
		if annotation != "" {
			m.Annotations[annotation] = "x"
		}
		s.Spec.SequentialJob.Metadata = m
	}
}

func TestStoppedSessionHasEndedWithItsLastAttempt(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 11, 27, 2, 0, 0, 0, time.UTC))
	ended := metav1.NewTime(created.Add(time.Hour))
	session := &v1alpha1.AgenticSession{}
	session.CreationTimestamp = created
	session.Status.Phase = v1alpha1.SessionStopped
	run := RunOfSession(session)
	require.True(t, run.IsFinished && run.CompletionTime.Equal(created.Time), "a session that was stopped before its first attempt: %+v", run)
	session.Status.Attempts = make([]v1alpha1.SessionAttempt, 2)
	session.Status.Attempts[0].CompletionTime, session.Status.Attempts[1].CompletionTime = &created, &ended
	run = RunOfSession(session)
	require.True(t, run.IsFinished && run.CompletionTime.Equal(ended.Time), "want the end %s of the last attempt, got %+v", ended, run)
}
