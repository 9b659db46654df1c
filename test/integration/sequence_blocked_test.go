package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// reportTime is the time within which a step's message names what keeps its Pod from running.
const reportTime = 5 * time.Second

// TestClassesOfErrorsOfTheAPIServer has the other causes for which the API server refuses a Pod.
func TestMessageSaysWithinSecondsWhyAStepDoesNotRun(t *testing.T) {
	t.Parallel()
	claim := `{"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]}}`
	for name, test := range map[string]struct{ template, wantReason, wantText string }{
		"image": {`{"metadata": {"annotations": {"` + simStuck + `": "true"}}}`, v1alpha1.ReasonImagePull, "container a: ImagePullBackOff"},
		"nodes": {`{"spec": {"nodeSelector": {"none": "such"}}}`, corev1.PodReasonUnschedulable, "node"},
		"gate":  {`{"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}`, corev1.PodReasonSchedulingGated, "SchedulingGated"},
		"claim": {claim, corev1.PodReasonUnschedulable, `"missing" not found`},
		// The dry run shows the cause, so no Job is created.
		"account": {`{"spec": {"serviceAccountName": "missing"}}`, v1alpha1.ReasonPodNotCreated, `serviceaccount "missing" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sj := testbuilder.SequentialJob(name, "").Step("a").Template(corev1.PodTemplateSpec{}).Obj()
			require.NoError(t, json.Unmarshal([]byte(test.template), sj.Spec.Template))
			s := createSequence(t, sj)
			since, wantPhase, isRefused := s.sj.CreationTimestamp, v1alpha1.StepPending, test.wantReason == v1alpha1.ReasonPodNotCreated
			if !isRefused {
				since, wantPhase = s.waitForJob("a").CreationTimestamp, v1alpha1.StepStarting
			}
			s.waitUntil("the reason", func(sj *v1alpha1.SequentialJob) bool {
				return len(sj.Status.Steps) > 0 && s.stepStatus("a").Reason == test.wantReason
			})
			assertWithin(t, "the reason is reported", reportTime+time.Second, since.Time) // a second of rounding
			step := s.stepStatus("a")
			if step.Phase != wantPhase || !strings.Contains(step.Message, test.wantText) {
				t.Errorf("phase %s and message %q, want %s and a message with %q", step.Phase, step.Message, wantPhase, test.wantText)
			}
			s.wantBlocked(test.wantReason)
			if isRefused {
				require.Equal(t, 0, len(s.listJobs()))
			} else {
				s.correct()
			}
		})
	}
}

// correct removes what keeps step a from starting, and changes its image, by a patch of the spec.
func (s *sequenceTest) correct() {
	s.t.Helper()
	const corrected = "registry.example/a:2"
	first := s.waitForJob("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) {
		delete(sj.Spec.Template.Annotations, simStuck)
		sj.Spec.Template.Spec, sj.Spec.Containers[0].Image = corev1.PodSpec{}, corrected
	})
	s.waitUntil("the next attempt", func(*v1alpha1.SequentialJob) bool { return s.stepStatus("a").Attempt == 2 })
	s.wantEvent(v1alpha1.EventJobReplaced)
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if job := s.waitForJob("a"); job.UID == first.UID || job.Spec.Template.Spec.Containers[0].Image != corrected {
		s.t.Errorf("a ran %s in Job %s", job.Spec.Template.Spec.Containers[0].Image, job.Name)
	}
}

// wantBlocked checks that the condition, the reason of the status and an event say what blocks the run.
func (s *sequenceTest) wantBlocked(reason string) {
	s.t.Helper()
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, reason)
	s.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason)
	require.True(s.t, s.sj.Status.Reason == reason, "the status has the reason %q, want %q", s.sj.Status.Reason, reason)
	if message := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionBlocked).Message; !strings.Contains(message, "; ") {
		s.t.Errorf("message %q does not say what to do", message)
	}
	s.wantEvent(v1alpha1.EventBlocked)
}
