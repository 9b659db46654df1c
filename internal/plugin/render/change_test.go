package render

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func texts(changes []Change) []string {
	var all []string
	for _, change := range changes {
		all = append(all, change.Text)
	}
	return all
}

func TestChangesHaveTheTimesOfTheStatus(t *testing.T) {
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)))
	}
	sj := &v1alpha1.SequentialJob{}
	sj.Status.Run, sj.Status.Phase, sj.Status.CompletionTime = 1, v1alpha1.PhaseFailed, at(9)
	sj.Status.Steps = []v1alpha1.StepStatus{
		{Name: "extract", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{Times: v1alpha1.Times{StartTime: at(1), CompletionTime: at(5)}}},
		{Name: "load", Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{Times: v1alpha1.Times{StartTime: at(5), CompletionTime: at(8)}}},
		{Name: "tidy", Phase: v1alpha1.StepSkipped},
	}
	want := []Change{
		{at(5).Time, "step extract: Succeeded"},
		{at(8).Time, "step load: Failed"},
		{at(9).Time, "step tidy: Skipped"},
		{at(9).Time, "Failed, 1/3 steps"},
	}
	require.Equal(t, want, SequenceChanges(nil, sj))
}
