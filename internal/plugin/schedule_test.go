package plugin

import (
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// nightlySchedule returns a Schedule in namespace a with an active run and missed times.
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
	suspended := func(s *v1alpha1.Schedule) { s.Spec.Suspend = true }
	invalid := func(s *v1alpha1.Schedule) { s.Spec.TimeZone = "Europe/Atlantis" }
	for title, row := range map[string]struct {
		args string
		s    *v1alpha1.Schedule
		code int
		want []string
	}{
		"a list has the last and next times": {
			"schedule list", nightlySchedule(), exitSuccess,
			[]string{"nightly   30 2 * * *   Europe/Berlin   Scheduled   1", "60m    failed   23h    2"},
		},
		"the next times are in the time zone of the Schedule": {
			"schedule next nightly --count 2", nightlySchedule(), exitSuccess, []string{"02:30 CET", "01:30"},
		},
		"the next times of an invalid Schedule": {
			"schedule next nightly", nightlySchedule(invalid), exitError, []string{"schedule.yardmaster.dev/nightly: spec.timeZone is not the name of a time zone"},
		},
		"too many next times": {"schedule next nightly --count 1001", nightlySchedule(), exitError, []string{"--count is 1001, must be 1 to 1000"}},
		"suspend":             {"schedule suspend nightly", nightlySchedule(), exitSuccess, []string{"schedule.yardmaster.dev/nightly suspended"}},
		"suspend twice":       {"schedule suspend nightly", nightlySchedule(suspended), exitSuccess, []string{"is already suspended"}},
		"resume":              {"schedule resume nightly", nightlySchedule(suspended), exitSuccess, []string{"schedule.yardmaster.dev/nightly resumed"}},
	} {
		t.Run(title, func(t *testing.T) {
			code, out, errOut := runPlugin(t, row.args, row.s)
			if code != row.code {
				t.Errorf("exit code %d, want %d", code, row.code)
			}
			for _, want := range row.want {
				if !strings.Contains(out+errOut, want) {
					t.Errorf("missing %q:\n%s%s", want, out, errOut)
				}
			}
		})
	}
}

func TestATriggeredRunBelongsToItsScheduleAndHasNoScheduledTime(t *testing.T) {
	c := newFakeClient(t, nightlySchedule())
	code, out, errOut := runPluginWith(t, "schedule trigger nightly", c)
	if code != exitSuccess || !strings.HasPrefix(out, "sequentialjob.yardmaster.dev/nightly-now-") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
	var runs v1alpha1.SequentialJobList
	if err := c.List(t.Context(), &runs, client.InNamespace("a")); err != nil || len(runs.Items) != 1 {
		t.Fatalf("%d runs: %v", len(runs.Items), err)
	}
	run := &runs.Items[0]
	if !metav1.IsControlledBy(run, nightlySchedule()) || run.Annotations[v1alpha1.AnnotationScheduledTime] != "" || len(run.Spec.Parameters) != 0 || len(run.Name) > 52 {
		t.Errorf("the run: %+v", run)
	}
}

func TestATriggeredJobIsSentToItsQueue(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	s := nightlySchedule(func(s *v1alpha1.Schedule) {
		s.Spec.SequentialJob, s.Spec.Message = nil, &v1alpha1.ScheduledMessage{QueueRef: v1alpha1.LocalReference{Name: "mail"}, Kind: "digest", Payload: &apiextensionsv1.JSON{Raw: []byte(`{"all":true}`)}}
	})
	code, out, errOut := runPlugin(t, "schedule trigger nightly", s, natsQueue("mail"), natsSecret(g.clientURL()))
	if code != exitSuccess || !strings.HasPrefix(out, "job nightly-now-") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
	if message := g.lastJob(); string(message.Data) != `{"all":true}` || message.Header.Get("Yardmaster-Kind") != "digest" || message.Header.Get("Scheduled-Time") != "" {
		t.Errorf("payload %q, headers %v", message.Data, message.Header)
	}
}
