package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// ofJobs makes a Schedule send jobs to Queue billing.
func ofJobs(spec *v1alpha1.ScheduleSpec) {
	spec.SequentialJob = nil
	spec.Message = &v1alpha1.ScheduledMessage{
		QueueRef: v1alpha1.LocalReference{Name: "billing"}, Kind: "invoice", Payload: &apiextensionsv1.JSON{Raw: []byte(`{"all":true}`)}, Headers: map[string]string{"Tenant": "acme"},
	}
}

func (e *queueEnv) messagesOf(name string) []*jetstream.RawStreamMsg {
	e.t.Helper()
	stream, err := e.connectJetStream().Stream(e.t.Context(), e.streamName(name))
	require.NoError(e.t, err)
	info, err := stream.Info(e.t.Context())
	require.NoError(e.t, err)
	var all []*jetstream.RawStreamMsg
	for sequence := max(info.State.FirstSeq, 1); sequence <= info.State.LastSeq; sequence++ {
		message, err := stream.GetMsg(e.t.Context(), sequence)
		require.NoError(e.t, err)
		all = append(all, message)
	}
	return all
}

func TestADueScheduleSendsAJobToItsQueueOnceItIsReady(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	s := createSchedule(t, e.ns, ofJobs)
	s.makeDue(1)
	s.waitForReady(metav1.ConditionFalse, v1alpha1.ReasonQueueNotFound)
	e.createQueue("billing", "")
	status := s.waitUntil("the job to be counted", func(s *v1alpha1.Schedule) bool { return s.Status.Runs == 1 }).Status
	s.waitForReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled)
	messages := e.messagesOf("billing")
	require.True(t, len(messages) == 1 && status.Missed == 0, "%d messages, %d missed", len(messages), status.Missed)
	due := status.LastScheduleTime.Time
	for header, want := range map[string]string{
		"Yardmaster-Kind": "invoice", "Tenant": "acme", "Content-Type": "application/json",
		"Scheduled-Time": due.UTC().Format(time.RFC3339), "Nats-Msg-Id": schedule.RunName(s.s, due),
	} {
		assert.Equal(t, header, want, messages[0].Header.Get(header))
	}
	require.True(t, string(messages[0].Data) == `{"all":true}`, "payload %s", messages[0].Data)
}

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
	require.True(s.t, i >= 0, "no run %s", name)
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
