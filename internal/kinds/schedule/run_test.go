package schedule

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

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
	const ownParameter, ownVariable = `{"parameters":[{"name":"SCHEDULED_TIME","value":"now"}]}`, `{"environmentVariables":{"SCHEDULED_TIME":"now"}}`
	for title, test := range map[string]struct{ kind, template, want string }{
		"a sequence":                               {"SequentialJob", `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"a"}],"parameters":[` + parameter + `]}`},
		"a sequence with parameters":               {"SequentialJob", `{"parameters":[{"name":"A","value":"1"}]}`, `{"parameters":[{"name":"A","value":"1"},` + parameter + `]}`},
		"a sequence with a parameter of that name": {"SequentialJob", ownParameter, ownParameter},
		"a session":                                {"AgenticSession", `{"prompt":"review","timeout":1800}`, `{"environmentVariables":` + variable + `,"prompt":"review","timeout":1800}`},
		"a session with a variable of that name":   {"AgenticSession", ownVariable, ownVariable},
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
			assert.Equal(t, "name", "run", run.GetName())
			require.True(t, run.GetKind() == test.kind && metav1.IsControlledBy(run, s) && run.GetLabels()[v1alpha1.LabelSchedule] == s.Name, "%v", run)
			want := map[string]string{v1alpha1.AnnotationScheduledTime: "2026-05-04T13:00:00Z", v1alpha1.AnnotationRerunID: "yesterday"}
			assert.Equal(t, "annotations", want, run.GetAnnotations())
			require.Equal(t, due, newRun(run, nil, false).ScheduledTime)
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
		"an unknown time zone":       {newSchedule(func(s *v1alpha1.Schedule) { s.Spec.TimeZone = "Europe/Atlantis" }), "spec.timeZone: Invalid value"},
		"no template":                {newSchedule(func(s *v1alpha1.Schedule) { s.Spec.SequentialJob = nil }), "spec.sequentialJob.spec: Invalid value"},
		"messages at a wrong time":   {newSchedule(ofMessages, func(s *v1alpha1.Schedule) { s.Spec.Schedule = "L" }), "spec.schedule: Invalid value"},
	} {
		t.Run(title, func(t *testing.T) {
			require.ErrorContains(t, Validate(test.s).ToAggregate(), test.want)
			require.True(t, newFacts(Observation{Schedule: test.s}).invalid != nil, "without a webhook, the Schedule is valid")
		})
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
	session := &v1alpha1.AgenticSession{}
	session.CreationTimestamp, session.Status.Phase = metav1.NewTime(created), v1alpha1.SessionStopped
	for attempts := range 3 { // a session that was stopped before its first attempt has ended as it was created
		run, want := RunOfSession(session), created.Add(time.Duration(attempts)*time.Hour)
		require.True(t, run.IsFinished && run.CompletionTime.Equal(want), "want the end %s of %d attempts, got %+v", want, attempts, run)
		session.Status.Attempts = append(session.Status.Attempts, v1alpha1.SessionAttempt{})
		session.Status.Attempts[attempts].CompletionTime = apiTime(want.Add(time.Hour))
	}
}

func ofMessages(s *v1alpha1.Schedule) {
	s.Spec.SequentialJob = nil
	s.Spec.Message = &v1alpha1.ScheduledMessage{QueueRef: v1alpha1.LocalReference{Name: "billing"}, Kind: "invoice", Payload: &apiextensionsv1.JSON{Raw: []byte(`{"all":true}`)}}
}

type answer func(*Observation)

// pass is one reconciliation of a Schedule of messages. It reports whether a message was sent to the broker. If another attempt fails,
// whether the first stored the message is unknown.
func (s *scenario) pass(since time.Duration, answered answer) (sent bool) {
	s.t.Helper()
	decision := Decide(Observation{Schedule: s.schedule, Now: created.Add(since)})
	s.store(&decision)
	sent = decision.CreateRun != nil
	for answered != nil && decision.CreateRun != nil { // else the operator crashes before it gets the answer
		observation := Observation{Schedule: s.schedule, Now: created.Add(since)}
		answered(&observation)
		if observation.NotSent != nil && !decision.IsFirstAttempt {
			break
		}
		decision = Decide(observation)
		s.store(&decision)
	}
	return sent
}

func confirmed(o *Observation) { o.Sent = true }

func notSent(o *Observation) {
	o.NotSent = &decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: "the queue is full"}
}

func (s *scenario) wantRuns(want int64) *scenario {
	s.t.Helper()
	assert.Equal(s.t, "status.runs", want, s.schedule.Status.Runs)
	return s
}

func TestAJobIsSentAgainOnlyWhileTheBrokerRecognizesIt(t *testing.T) {
	for title, test := range map[string]struct {
		after        time.Duration
		runs, missed int64
	}{
		"within a minute":                    {59 * time.Second, 1, 0},
		"after a minute":                     {time.Minute, 0, 1},
		"after a long time":                  {50 * time.Minute, 0, 1},
		"when the next job is due":           {time.Hour, 1, 1},
		"after the clock was set back":       {-10 * time.Second, 0, 1},
		"after the clock was set back a bit": {-5 * time.Second, 1, 0},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, ofMessages).at(time.Second)
			s.pass(time.Hour, nil)
			require.Equal(t, test.runs > 0, s.pass(time.Hour+test.after, confirmed))
			s.wantRuns(test.runs)
			if test.missed == 0 {
				s.wantMissed(0, "")
			} else {
				s.wantMissed(test.missed, v1alpha1.MissedOutcomeUnknown).wantEvent("the broker did not confirm the message, which may be in its queue")
			}
		})
	}
}

func TestAJobThatIsKnownNotToBeSentIsRetriedUntilItsDeadline(t *testing.T) {
	s := newScenario(t, ofMessages, deadline(600)).at(time.Second)
	for minute := range 9 {
		late := time.Duration(minute) * time.Minute
		require.True(t, s.pass(time.Hour+late, notSent), "%s late: not tried", late)
		require.Equal(t, min(max(late, time.Second), time.Minute), s.wait)
		s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonQueueNotReady, "the queue is full").wantMissed(0, "")
	}
	s.pass(time.Hour+9*time.Minute+30*time.Second, notSent)
	s.pass(2*time.Hour, confirmed)
	s.wantRuns(1).wantMissed(1, v1alpha1.MissedTooLate)
}

func TestAJobThatTheBrokerRejectsIsMissed(t *testing.T) {
	s := newScenario(t, ofMessages).at(time.Second)
	s.pass(time.Hour, func(o *Observation) {
		o.Refusal = &decision.Refusal{Class: decision.Invalid, Message: "unknown priority"}
	})
	s.wantRuns(0).wantMissed(1, v1alpha1.MissedRefused).wantReady(metav1.ConditionFalse, v1alpha1.ReasonRunRefused, "unknown priority")
}

func TestJobsAreDueUntilTheirQueueIsReady(t *testing.T) {
	for title, test := range map[string]struct {
		change func(*v1alpha1.Schedule)
		runs   int64
	}{
		"one":     {catchUp(v1alpha1.CatchUpLatest), 1},
		"several": {catchUp(v1alpha1.CatchUpAll), 3},
		"a triggered one, if suspended": {func(s *v1alpha1.Schedule) {
			s.Spec.Suspend, s.Spec.Rerun = true, &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "now"}}
		}, 1},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, ofMessages).at(time.Second)
			test.change(s.schedule)
			problem := &decision.Problem{Reason: v1alpha1.ReasonQueueNotFound, Message: "Queue billing does not exist"}
			away := Decide(Observation{Schedule: s.schedule, Now: created.Add(3 * time.Hour), NotReady: problem})
			s.store(&away)
			require.True(t, away.CreateRun == nil, "a message was sent")
			s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonQueueNotFound, "billing").wantMissed(0, "")
			s.pass(3*time.Hour+30*time.Minute, confirmed)
			s.wantRuns(test.runs).wantEvent("RunCreated: Sent message nightly-").wantEvent(" to Queue billing, 30m0s late")
		})
	}
}

func TestAJobHasItsTimeAndWhatTheScheduleSays(t *testing.T) {
	s := newSchedule(ofMessages, func(s *v1alpha1.Schedule) {
		s.Spec.Message.Headers = map[string]string{"Tenant": "acme"}
		s.Spec.Message.Priority, s.Spec.Message.Timeout = "low", &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Minute}}
	})
	message := NewMessage(s, "billing", RunName(s, created), created)
	require.NoError(t, message.Validate())
	want := map[string][]string{"Tenant": {"acme"}, "Content-Type": {"application/json"}, "Scheduled-Time": {"2026-05-04T12:00:00Z"}}
	if diff := cmp.Diff(want, message.Headers); diff != "" || message.Kind != "invoice" || message.Priority != "low" || message.Timeout != time.Minute || string(message.Payload) != `{"all":true}` || !message.HasChosenID {
		t.Errorf("message %+v, headers (-want +got):\n%s", message, diff)
	}
}

func TestInvalidJobsAreRefusedByField(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.ScheduledMessage){
		"spec.message.kind":     func(j *v1alpha1.ScheduledMessage) { j.Kind = "a b" },
		"spec.message.priority": func(j *v1alpha1.ScheduledMessage) { j.Priority = "Low!" },
		"spec.message.timeout": func(j *v1alpha1.ScheduledMessage) {
			j.Timeout = &v1alpha1.Duration{Duration: metav1.Duration{Duration: 1}}
		},
		"spec.message.headers[Nats-Msg-Id]": func(j *v1alpha1.ScheduledMessage) { j.Headers = map[string]string{"Nats-Msg-Id": "1"} },
	} {
		errs := Validate(newSchedule(ofMessages, func(s *v1alpha1.Schedule) { change(s.Spec.Message) }))
		require.True(t, len(errs) == 1 && strings.HasPrefix(errs[0].Error(), want+":"), "errors %v, want one of %s", errs, want)
	}
}
