package render

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestRerunReportsNoChangeForKeptSteps(t *testing.T) {
	before := sequentialJob(v1alpha1.PhaseFailed, 1, v1alpha1.StepStatus{Name: "extract", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}})
	after := sequentialJob(v1alpha1.PhaseRunning, 2,
		v1alpha1.StepStatus{Name: "extract", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}},
		v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepStarting, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 2}}})
	want := []string{"step load: Starting", "Running, 1/2 steps"}
	require.Equal(t, want, texts(SequenceChanges(before, after)))
}

func TestSequenceProblemsAreReportedOnce(t *testing.T) {
	before := sequentialJob(v1alpha1.PhasePending, 1)
	after := sequentialJob(v1alpha1.PhasePending, 1)
	after.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionResourcesUnavailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonQuotaExceeded, Message: "exceeded quota: pods",
	}}
	want := []string{"QuotaExceeded: exceeded quota: pods"}
	require.Equal(t, want, texts(SequenceChanges(before, after)))
	if got := SequenceChanges(after, after); len(got) > 0 {
		t.Errorf("reported again: %q", got)
	}
}
