package render

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

// stepStarted returns a step that started at start. It has finished if took is positive.
func stepStarted(name string, phase v1alpha1.StepPhase, took time.Duration) v1alpha1.StepStatus {
	s := v1alpha1.StepStatus{Name: name, Phase: phase, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}, Times: v1alpha1.Times{StartTime: &metav1.Time{Time: startTime}}}}
	if took > 0 {
		s.CompletionTime = &metav1.Time{Time: startTime.Add(took)}
	}
	return s
}

func withArchive(archive v1alpha1.SequenceArchiveStatus) *v1alpha1.SequentialJob {
	sj := sequentialJob(v1alpha1.PhaseCompleted, 1)
	sj.Status.Archive = &archive
	return sj
}

func TestSequenceDetail(t *testing.T) {
	failed := stepStarted("migrate", v1alpha1.StepFailed, 3*time.Second)
	failed.Reason, failed.Message = "BackoffLimitExceeded", "container migrate exited with code 7: no such table\nof that name"
	output := stepStarted("extract", v1alpha1.StepSucceeded, 12*time.Second)
	output.Output = "\x1b[2J42 rows\n"
	tolerated := stepStarted("lint", v1alpha1.StepFailed, time.Second)
	tolerated.Tolerated, tolerated.Attempt = true, 2
	pending := v1alpha1.StepStatus{Name: "clean-up", Phase: v1alpha1.StepPending}
	completed := sequentialJob(v1alpha1.PhaseCompleted, 1, stepStarted("extract", v1alpha1.StepSucceeded, time.Second))
	completed.Status.Results = []v1alpha1.Parameter{{Name: "rows", Value: "42"}, {Name: "digest", Value: "\x1b[2Jsha256:00"}}
	refused := sequentialJob(v1alpha1.PhaseFailed, 1)
	refused.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionSpecAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStepInvalid, Message: "no such image",
	}}
	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		want []string
	}{
		"the duration of a running step ends now": {
			sequentialJob(v1alpha1.PhaseRunning, 1, stepStarted("extract", v1alpha1.StepRunning, 0), pending),
			[]string{
				"etl   Running   0/1   1m5s",
				"  ▶ extract              Running   1m5s",
				"  · clean-up (finally)   Pending",
			},
		},
		"a failed step shows its cause on one line": {
			sequentialJob(v1alpha1.PhaseFailed, 1, failed),
			[]string{
				"etl   Failed   0/1   1m5s",
				"  ✘ migrate   Failed   3s   BackoffLimitExceeded: container migrate exited with code 7: no such table of that name",
			},
		},
		"an output cannot control the terminal": {
			sequentialJob(v1alpha1.PhaseRunning, 1, output),
			[]string{
				"etl   Running   1/1   1m5s",
				"  ✔ extract   Succeeded   12s   output: \uFFFD[2J42 rows",
			},
		},
		"the results of a completed run": {
			completed,
			[]string{
				"etl   Completed   1/1   1m5s",
				"  ✔ extract   Succeeded   1s",
				"  result rows: 42",
				"  result digest: \uFFFD[2Jsha256:00",
			},
		},
		"a rerun shows its number and the outcomes it kept": {
			sequentialJob(v1alpha1.PhaseRunning, 2, stepStarted("extract", v1alpha1.StepSucceeded, time.Second)),
			[]string{
				"etl   Running   run 2   1/1   1m5s",
				"  ✔ extract   Succeeded   1s   from run 1",
			},
		},
		"a tolerated failure of a second attempt": {
			sequentialJob(v1alpha1.PhaseRunning, 1, tolerated),
			[]string{
				"etl   Running   0/1   1m5s",
				"  ✘ lint   Failed   1s   attempt 2, tolerated",
			},
		},
		"a problem from the conditions": {
			refused,
			[]string{
				"etl   Failed   1m5s",
				"  StepInvalid: no such image",
			},
		},
		"archived logs": {
			withArchive(v1alpha1.SequenceArchiveStatus{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}, Times: v1alpha1.Times{CompletionTime: &metav1.Time{Time: startTime}}, Explanation: v1alpha1.Explanation{Message: "1 logs"}}, ArchiveResult: v1alpha1.ArchiveResult{Location: "s3://logs/a"}}),
			[]string{"etl   Completed   1m5s", "  logs of run 1: s3://logs/a"},
		},
		"logs that are not archived": {
			withArchive(v1alpha1.SequenceArchiveStatus{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}, Times: v1alpha1.Times{CompletionTime: &metav1.Time{Time: startTime}}, Explanation: v1alpha1.Explanation{Reason: "JobFailed"}}, ArchiveResult: v1alpha1.ArchiveResult{Location: "s3://logs/a", Error: "\x1b[2Jno"}}),
			[]string{"etl   Completed   1m5s", "  logs of run 1: not archived: JobFailed: \uFFFD[2Jno"},
		},
		"logs that are being archived": {
			withArchive(v1alpha1.SequenceArchiveStatus{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}, ArchiveResult: v1alpha1.ArchiveResult{Location: "s3://logs/a"}}),
			[]string{"etl   Completed   1m5s", "  logs of run 1: being archived"},
		},
		"the run of a Schedule": {
			&v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{
				Name:            "etl",
				OwnerReferences: decision.ControllerReferences("Schedule", &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}}),
				Annotations:     map[string]string{v1alpha1.AnnotationScheduledTime: "2026-03-01T01:30:00Z", v1alpha1.AnnotationRerunID: "again"},
			}},
			[]string{"etl   Pending", "  a run of Schedule nightly, due at 2026-03-01T01:30:00Z, of request again"},
		},
		"without a status": {
			&v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "etl"}},
			[]string{"etl   Pending"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := SequenceDetail(terminal.Style{}, row.sj, startTime.Add(65*time.Second))
			require.Equal(t, row.want, got)
		})
	}
}
