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

var startTime = time.Unix(1_000_000, 0)

func sequentialJob(phase v1alpha1.SequentialJobPhase, run int32, steps ...v1alpha1.StepStatus) *v1alpha1.SequentialJob {
	return &v1alpha1.SequentialJob{
		ObjectMeta: metav1.ObjectMeta{Name: "etl", Namespace: "data", CreationTimestamp: metav1.Time{Time: startTime}},
		Spec:       v1alpha1.SequentialJobSpec{Containers: []v1alpha1.Step{{Name: "clean-up", Step: &v1alpha1.StepOptions{Finally: true}}}},
		Status: v1alpha1.SequentialJobStatus{
			Phase: phase, RunStatus: v1alpha1.RunStatus{Run: run, Times: v1alpha1.Times{StartTime: &metav1.Time{Time: startTime}}}, Steps: steps,
			Progress: v1alpha1.Progress{CurrentStep: "load"},
		},
	}
}

func TestSequenceTable(t *testing.T) {
	step := func(name string, phase v1alpha1.StepPhase) v1alpha1.StepStatus {
		return v1alpha1.StepStatus{Name: name, Phase: phase}
	}
	named := func(name string, phase v1alpha1.SequentialJobPhase, steps ...v1alpha1.StepStatus) *v1alpha1.SequentialJob {
		sj := sequentialJob(phase, 1, steps...)
		sj.Name = name
		return sj
	}
	succeeded := step("extract", v1alpha1.StepSucceeded)
	blocked := named("blocked", v1alpha1.PhaseRunning, succeeded, step("load", v1alpha1.StepQueued))
	blocked.Status.Reason = v1alpha1.ReasonQueued
	table := SequenceTable(terminal.Style{}, []*v1alpha1.SequentialJob{
		{ObjectMeta: metav1.ObjectMeta{Name: "without-status"}},
		named("with-finally", v1alpha1.PhaseRunning, succeeded, step("load", v1alpha1.StepRunning), step("clean-up", v1alpha1.StepPending)),
		named("failed", v1alpha1.PhaseFailed, succeeded, step("load", v1alpha1.StepFailed), step("verify", v1alpha1.StepSkipped)),
		blocked,
		named("many-steps", v1alpha1.PhaseRunning, make([]v1alpha1.StepStatus, 110)...),
	}, startTime.Add(65*time.Second))
	want := []string{
		"NAME             STATUS    REASON   STEPS   STEP       TIME   AGE",
		"without-status   Pending",
		"with-finally     Running            ✔▶|·    load       1m5s   65s",
		"failed           Failed             ✔✘-     load       1m5s   65s",
		"blocked          Running   Queued   ✔‖      load       1m5s   65s",
		"many-steps       Running            0/110   load       1m5s   65s",
	}
	require.Equal(t, want, table.Lines(false))
}

func TestColorsDoNotChangeTheWidthOfATable(t *testing.T) {
	sjs := []*v1alpha1.SequentialJob{
		sequentialJob(v1alpha1.PhaseRunning, 1, v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepRunning}),
		sequentialJob(v1alpha1.PhaseFailed, 1, v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepFailed, Tolerated: true}),
	}
	plain := SequenceTable(terminal.Style{}, sjs, startTime).Lines(false)
	for i, line := range SequenceTable(terminal.Style{ColorEnabled: true}, sjs, startTime).Lines(false) {
		require.True(t, line != plain[i] && terminal.DisplayWidth(line) == terminal.DisplayWidth(plain[i]), "%q with colors is %q", plain[i], line)
	}
}

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
	got := SequenceChanges(after, after)
	require.True(t, len(got) == 0, "reported again: %q", got)
}

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
			[]string{"etl   Running   0/1   1m5s", "  ▶ extract              Running   1m5s", "  · clean-up (finally)   Pending"},
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
			[]string{"etl   Running   1/1   1m5s", "  ✔ extract   Succeeded   12s   output: \uFFFD[2J42 rows"},
		},
		"the results of a completed run": {
			completed,
			[]string{"etl   Completed   1/1   1m5s", "  ✔ extract   Succeeded   1s", "  result rows: 42", "  result digest: \uFFFD[2Jsha256:00"},
		},
		"a rerun shows its number and the outcomes it kept": {
			sequentialJob(v1alpha1.PhaseRunning, 2, stepStarted("extract", v1alpha1.StepSucceeded, time.Second)),
			[]string{"etl   Running   run 2   1/1   1m5s", "  ✔ extract   Succeeded   1s   from run 1"},
		},
		"a tolerated failure of a second attempt": {
			sequentialJob(v1alpha1.PhaseRunning, 1, tolerated),
			[]string{"etl   Running   0/1   1m5s", "  ✘ lint   Failed   1s   attempt 2, tolerated"},
		},
		"a problem from the conditions": {refused, []string{"etl   Failed   1m5s", "  StepInvalid: no such image"}},
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
		"without a status": {&v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "etl"}}, []string{"etl   Pending"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := SequenceDetail(terminal.Style{}, row.sj, startTime.Add(65*time.Second))
			require.Equal(t, row.want, got)
		})
	}
}
