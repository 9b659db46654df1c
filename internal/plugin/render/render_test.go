package render

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
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

func conditions(kind, status, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}}
}

func TestSequenceChangesAreReportedOnce(t *testing.T) {
	step := func(name string, phase v1alpha1.StepPhase, run int32) v1alpha1.StepStatus {
		return v1alpha1.StepStatus{Name: name, Phase: phase, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: run}}}
	}
	kept := step("extract", v1alpha1.StepSucceeded, 1)
	pending, blocked := sequentialJob(v1alpha1.PhasePending, 1), sequentialJob(v1alpha1.PhasePending, 1)
	blocked.Status.Conditions = conditions(v1alpha1.ConditionResourcesUnavailable, "True", v1alpha1.ReasonQuotaExceeded, "exceeded quota: pods")
	for title, row := range map[string]struct {
		before, after *v1alpha1.SequentialJob
		want          []string
	}{
		"a rerun, without the steps that it keeps": {
			sequentialJob(v1alpha1.PhaseFailed, 1, kept), sequentialJob(v1alpha1.PhaseRunning, 2, kept, step("load", v1alpha1.StepStarting, 2)),
			[]string{"step load: Starting", "Running, 1/2 steps"},
		},
		"a new problem":   {pending, blocked, []string{"QuotaExceeded: exceeded quota: pods"}},
		"a known problem": {blocked, blocked, nil},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, texts(SequenceChanges(row.before, row.after))) })
	}
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
	refused.Status.Conditions = conditions(v1alpha1.ConditionSpecAccepted, "False", v1alpha1.ReasonStepInvalid, "no such image")
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
			completed, []string{"etl   Completed   1/1   1m5s", "  ✔ extract   Succeeded   1s", "  result rows: 42", "  result digest: \uFFFD[2Jsha256:00"},
		},
		"a rerun shows its number and the outcomes it kept": {
			sequentialJob(v1alpha1.PhaseRunning, 2, stepStarted("extract", v1alpha1.StepSucceeded, time.Second)),
			[]string{"etl   Running   run 2   1/1   1m5s", "  ✔ extract   Succeeded   1s   from run 1"},
		},
		"a tolerated failure of a second attempt": {
			sequentialJob(v1alpha1.PhaseRunning, 1, tolerated), []string{"etl   Running   0/1   1m5s", "  ✘ lint   Failed   1s   attempt 2, tolerated"},
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

func seconds(n int) v1alpha1.Duration {
	return v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Duration(n) * time.Second}}
}

// runningSession returns a session whose second attempt started ten seconds before start.
func runningSession(changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: startTime.Add(time.Duration(seconds) * time.Second)}
	}
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "tidy", Namespace: "data", CreationTimestamp: *at(-120)}}
	s.Spec.Runner, s.Spec.Limits.Timeout = "default", v1alpha1.NewDuration(30*time.Minute)
	s.Status = v1alpha1.AgenticSessionStatus{
		Phase: v1alpha1.SessionRunning, RunStatus: v1alpha1.RunStatus{Run: 1}, ActiveDuration: seconds(40), TotalCostUSD: new(v1alpha1.Number("0.12")),
		Attempt: v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 2}, JobName: "tidy-r1-a2", Times: v1alpha1.Times{StartTime: at(-10)}}, ActiveSince: at(-10)},
		Attempts: []v1alpha1.SessionAttempt{{
			JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}, JobName: "tidy-r1-a1", Times: v1alpha1.Times{StartTime: at(-60), CompletionTime: at(-20)}, Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonExitedWithError, Message: "the runner exited\nwith code 3"}}, Outcome: v1alpha1.RunRetried, CostUSD: new(v1alpha1.Number("0.12")),
		}},
		ObservedStatus: v1alpha1.ObservedStatus{Conditions: conditions(v1alpha1.ConditionReady, "True", v1alpha1.ReasonRunning, "")},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func completeAttempt(s *v1alpha1.AgenticSession) {
	s.Status.Phase, s.Status.Attempt, s.Status.ActiveDuration = v1alpha1.SessionCompleted, v1alpha1.SessionAttempt{}, seconds(52)
	s.Status.Conditions[0].Reason = string(v1alpha1.SessionCompleted)
	s.Status.Attempts = append(s.Status.Attempts, v1alpha1.SessionAttempt{
		JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 2}, JobName: "tidy-r1-a2", Explanation: v1alpha1.Explanation{Reason: string(v1alpha1.RunCompleted)}, Times: v1alpha1.Times{StartTime: &metav1.Time{Time: startTime.Add(-10 * time.Second)}, CompletionTime: &metav1.Time{Time: startTime.Add(2 * time.Second)}}}, Outcome: v1alpha1.RunCompleted,
	})
	s.Status.Result = &v1alpha1.SessionResult{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 2}, Summary: "Removed\n3 functions."}
}

func waitForRunner(s *v1alpha1.AgenticSession) {
	s.Status = v1alpha1.AgenticSessionStatus{Phase: v1alpha1.SessionPending, RunStatus: v1alpha1.RunStatus{Run: 1}}
	s.Status.Conditions = conditions(v1alpha1.ConditionReady, "False", v1alpha1.ReasonRunnerNotFound, "SessionRunner default does not exist")
}

func TestSessionTable(t *testing.T) {
	named := func(name string, changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
		s := runningSession(changes...)
		s.Name = name
		return s
	}
	table := SessionTable(terminal.Style{}, []*v1alpha1.AgenticSession{
		{ObjectMeta: metav1.ObjectMeta{Name: "without-status", Namespace: "data"}},
		named("running"),
		named("without-limit", func(s *v1alpha1.AgenticSession) { s.Spec.Limits.Timeout = v1alpha1.NewDuration(0) }),
		named("stopped", func(s *v1alpha1.AgenticSession) {
			s.Status.Phase, s.Status.StoppedReason = v1alpha1.SessionStopped, v1alpha1.StopInactivity
		}),
		named("waiting", waitForRunner),
		named("deleted", func(s *v1alpha1.AgenticSession) { s.DeletionTimestamp = &metav1.Time{Time: startTime} }),
	}, startTime)
	want := []string{
		"NAMESPACE   NAME             STATUS     REASON                  RUN   ATTEMPT   TIME        COST    RUNNER    AGE",
		"data        without-status   Pending    -                       -     -         0s/4h0m0s   -",
		"data        running          Running    -                       1     2         50s/30m0s   $0.12   default   2m",
		"data        without-limit    Running    -                       1     2         50s         $0.12   default   2m",
		"data        stopped          Stopped    Inactivity              1     2         50s/30m0s   $0.12   default   2m",
		"data        waiting          Pending    SessionRunnerNotFound   1     -         0s/30m0s    -       default   2m",
		"data        deleted          Deleting   -                       1     2         50s/30m0s   $0.12   default   2m",
	}
	require.Equal(t, want, table.Lines(true))
}

func TestSessionDetailShowsEachAttempt(t *testing.T) {
	for title, row := range map[string]struct {
		session *v1alpha1.AgenticSession
		want    []string
	}{
		"running": {runningSession(), []string{
			"tidy   Running   50s/30m0s   $0.12",
			"  ✘ run 1, attempt 1   Retried   40s   $0.12   ExitedWithError: the runner exited with code 3",
			"  ▶ run 1, attempt 2   Running   10s",
		}},
		"completed": {runningSession(completeAttempt), []string{
			"tidy   Completed   52s/30m0s   $0.12",
			"  ✘ run 1, attempt 1   Retried     40s   $0.12   ExitedWithError: the runner exited with code 3",
			"  ✔ run 1, attempt 2   Completed   12s   -",
			"  Removed 3 functions.",
		}},
		"stopped": {
			runningSession(func(s *v1alpha1.AgenticSession) {
				s.Status.Phase, s.Status.Attempt = v1alpha1.SessionStopped, v1alpha1.SessionAttempt{}
				s.Status.Attempts[0].Outcome, s.Status.Attempts[0].Reason, s.Status.Attempts[0].Message = v1alpha1.RunStopped, string(v1alpha1.StopUser), ""
			}),
			[]string{"tidy   Stopped   40s/30m0s   $0.12", "  ■ run 1, attempt 1   Stopped   40s   $0.12   User"},
		},
		"of a Schedule": {
			runningSession(waitForRunner, func(s *v1alpha1.AgenticSession) {
				s.OwnerReferences = decision.ControllerReferences("Schedule", &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "weekly"}})
			}),
			[]string{"tidy   Pending   0s/30m0s   -", "  a run of Schedule weekly", "  SessionRunnerNotFound: SessionRunner default does not exist"},
		},
		"waiting": {runningSession(waitForRunner), []string{"tidy   Pending   0s/30m0s   -", "  SessionRunnerNotFound: SessionRunner default does not exist"}},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, SessionDetail(terminal.Style{}, row.session, startTime))
		})
	}
}

func TestSessionChangesAreReportedOnce(t *testing.T) {
	malformed := runningSession(completeAttempt, func(s *v1alpha1.AgenticSession) {
		malformed := conditions(v1alpha1.ConditionRunnerReporting, "False", v1alpha1.ReasonResultMalformed, "the result is cut off")
		s.Status.Conditions = append(s.Status.Conditions, malformed...)
	})
	for title, row := range map[string]struct {
		before, after *v1alpha1.AgenticSession
		want          []string
	}{
		"everything for the first state": {nil, runningSession(), []string{
			"run 1, attempt 1: Retried: ExitedWithError: the runner exited with code 3", "Running, run 1, attempt 2",
		}},
		"nothing without a change":  {runningSession(), runningSession(), nil},
		"the outcome of an attempt": {runningSession(), runningSession(completeAttempt), []string{"run 1, attempt 2: Completed", "Completed, run 1, attempt 2"}},
		"the reason for waiting":    {nil, runningSession(waitForRunner), []string{"SessionRunnerNotFound: SessionRunner default does not exist", "Pending"}},
		"an unreadable result":      {runningSession(completeAttempt), malformed, []string{"ResultMalformed: the result is cut off"}},
		"nothing without a status":  {nil, &v1alpha1.AgenticSession{}, nil},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, texts(SessionChanges(row.before, row.after))) })
	}
}

func TestSessionResultShowsTheReportOfTheRunner(t *testing.T) {
	s := runningSession(completeAttempt, func(s *v1alpha1.AgenticSession) {
		s.Status.Attempts[1].CostUSD = new(v1alpha1.Number("0.1"))
		s.Status.Result.Usage = &apiextensionsv1.JSON{Raw: []byte(`{"tokens":12}`)}
		s.Status.Result.SDKSessionID = "abc"
	})
	want := []string{
		"attempt        run 1, attempt 2", "cost           $0.1", "all runs       $0.12", `usage          {"tokens":12}`, "sdkSessionID   abc",
		"", "Removed", "3 functions.",
	}
	require.Equal(t, want, SessionResult(terminal.Style{}, s))
	if diff := cmp.Diff([]string{"attempt    run 1, attempt 2", "all runs   $0.12"}, SessionResult(terminal.Style{}, runningSession(completeAttempt, func(s *v1alpha1.AgenticSession) {
		s.Status.Result.Summary = ""
	}))); diff != "" {
		t.Errorf("without a summary (-want +got):\n%s", diff)
	}
}

func TestSessionEventsAreRendered(t *testing.T) {
	const long = `one\ntwo\nthree\nfour\nfive\nsix\nseven`
	for title, row := range map[string]struct {
		line, want string
		full       bool
	}{
		"the start":               {`{"type":"started","conversation":"c-1","model":"small"}`, "started small in conversation c-1", false},
		"a text with indentation": {`{"type":"text","text":"Do:\n\tgo test\n"}`, "Do:\n    go test", false},
		"thinking":                {`{"type":"thinking","text":"First,\nthen"}`, "… First,\n  then", false},
		"a command":               {`{"type":"toolCall","tool":{"name":"Bash","input":{"command":"go test ./...","description":"x"}}}`, "▸ Bash go test ./...", false},
		"a command of Codex":      {`{"type":"toolCall","tool":{"name":"shell","input":{"cmd":"ls"}}}`, "▸ shell ls", false},
		"a file that is read":     {`{"type":"toolCall","tool":{"name":"Read","input":{"file_path":"/w/a.go"}}}`, "▸ Read /w/a.go", false},
		"another tool":            {`{"type":"toolCall","tool":{"name":"search","input":{"q":"x"}}}`, `▸ search {"q":"x"}`, false},
		"a folded change":         {`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":"/w/a.go","old_string":"a\nb\n","new_string":"c"}}}`, "▸ Edit /w/a.go (+1 -2)", false},
		"an unfolded change":      {`{"type":"toolCall","tool":{"name":"edit","input":{"filePath":"/w/a.go","oldString":"a\nb\n","newString":"c"}}}`, "▸ edit /w/a.go (+1 -2)\n  - a\n  - b\n  + c", true},
		"a new file":              {`{"type":"toolCall","tool":{"name":"Write","input":{"file_path":"a","content":"x\ny\n"}}}`, "▸ Write a (+2 -0)", false},
		"a folded result":         {`{"type":"toolResult","text":"` + long + `"}`, "  one\n  two\n  three\n  four\n  five\n  … 2 more lines", false},
		"a whole result":          {`{"type":"toolResult","text":"` + long + `"}`, "  " + strings.ReplaceAll(long, `\n`, "\n  "), true},
		"an empty result":         {`{"type":"toolResult"}`, "", false},
		"tokens of a request":     {`{"type":"usage","usage":{"inputTokens":1}}`, "", false},
		"tokens of the session":   {`{"type":"usage","total":true,"usage":{"inputTokens":1,"cacheWriteTokens":2,"cacheReadTokens":3,"outputTokens":4},"costUSD":0.12345}`, "3 tokens in, 3 from the cache, 4 out, $0.1235", false},
		"a retry":                 {`{"type":"retry","text":"status 429"}`, "retry: status 429", false},
		"an error":                {`{"type":"error","text":"no"}`, "error: no", false},
		"the end":                 {`{"type":"result","text":"All done."}`, "finished", false},
		"a failure":               {`{"type":"result","text":"no credit","failed":true}`, "failed: no credit", false},
		"the runner":              {`{"type":"runner","text":"Starting"}`, "Starting", false},
		"omitted bytes":           {`{"type":"output","omitted":7}`, "\n  … 7 bytes omitted", false},
		"a time before the line":  {`2026-11-26T04:00:00Z {"type":"text","text":"a\nb"}`, "2026-11-26T04:00:00Z a\n2026-11-26T04:00:00Z b", false},
		"other programs":          {`plain text`, "plain text", false},
		"other JSON":              {`{"level":"info"}`, `{"level":"info"}`, false},
		"an input without a tool": {`{"type":"toolCall"}`, "", false},
	} {
		t.Run(title, func(t *testing.T) {
			r := &SessionEvents{Full: row.full}
			require.Equal(t, row.want, strings.Join(r.Lines([]byte(row.line)), "\n"))
		})
	}
}

// An agent can write any characters, for example those that rename the window or hide what was printed before.
func FuzzRenderedEventsHaveNoControlCharacters(f *testing.F) {
	for _, line := range []string{
		"\x1b]0;title\x07", `{"type":"text","text":"\u001b[2J\r\u0008\u0000\u202e"}`, `{"type":"toolCall","tool":{"name":"\u001b[1A","input":{"command":"\u001b[2K"}}}`,
		`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":"\u001b","content":"\u001b\n\u009b"}}}`, `{"type":"\u001b","text":"\u2028"}`,
		"\x1b[0m {\"type\":\"text\",\"text\":\"x\"}",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, full := range []bool{false, true} {
			r := &SessionEvents{Style: terminal.Style{}, Full: full}
			for _, got := range r.Lines([]byte(line)) {
				require.True(t, !strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) && c != ' ' }), "%q is rendered as %q", line, got)
			}
		}
	})
}

// mailersPool returns a pool with 6 of 8 workers ready.
func mailersPool(changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mailers", Namespace: "data", CreationTimestamp: metav1.Time{Time: startTime}}}
	wp.Spec.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: 1, MaxReplicas: 12, WaitP95: &v1alpha1.Duration{Duration: metav1.Duration{Duration: 30 * time.Second}}}
	wp.Status = v1alpha1.WorkerPoolStatus{
		Desired: 8, WorkerCounts: v1alpha1.WorkerCounts{Replicas: 8, Ready: 6}, Busy: new(int32(5)), MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(1200)), InFlight: new(int64(50)), WaitP95: &metav1.Duration{Duration: 12_340 * time.Millisecond}},
		CurrentRevision: "mailers-1a", UpdatedRevision: "mailers-2",
		Revisions:      []v1alpha1.RevisionStatus{{Name: "mailers-2", Version: "1.1"}, {Name: "mailers-1a"}},
		ObjectiveMet:   metav1.ConditionTrue,
		LastDecision:   &v1alpha1.ScaleDecision{Explanation: v1alpha1.Explanation{Reason: "Demand"}},
		ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}}},
	}
	for _, change := range changes {
		change(wp)
	}
	return wp
}

func TestPoolTable(t *testing.T) {
	pools := []*v1alpha1.WorkerPool{mailersPool(), {ObjectMeta: metav1.ObjectMeta{Name: "without-status"}}}
	want := []string{
		"NAME             STATUS    WORKERS   BUSY   DRAINING   BACKLOG   P95/SLO     REVISION   DECISION   AGE",
		"mailers          Ready     6/8       5      0          1200      12.3s/30s   1a→1.1     Demand     2m",
		"without-status   Pending   0/0       -      0          -         -           -          Manual",
	}
	require.Equal(t, want, PoolTable(terminal.Style{}, pools, startTime.Add(2*time.Minute)).Lines(false))
}

func TestPoolLoadTableShowsBacklogAndWorkers(t *testing.T) {
	want := []string{
		"NAMESPACE   NAME      BACKLOG           IN FLIGHT   P95/SLO     WORKERS                  BUSY   DRAINING   DECISION",
		"data        mailers   1200      ▁▂▄▆█   50          12.3s/30s   6/8       ██████▒▒····   5      0          Demand",
	}
	got := PoolLoadTable(terminal.Style{}, []*PoolLoad{{mailersPool(), []int64{0, 200, 600, 900, 1200}}}).Lines(true)
	require.Equal(t, want, got)
}

func TestPoolChangesAreReportedOnce(t *testing.T) {
	degraded := func(wp *v1alpha1.WorkerPool) {
		crashing := conditions(v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonCrashLoop, "mailers-2-x has restarted 5 times")
		wp.Status.Conditions = append(wp.Status.Conditions, crashing...)
	}
	draining := func(wp *v1alpha1.WorkerPool) { wp.Status.Desired, wp.Status.Draining = 6, 2 }
	repeating := func(wp *v1alpha1.WorkerPool) {
		wp.Status.Conditions = append(wp.Status.Conditions,
			metav1.Condition{Type: v1alpha1.ConditionScalingActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonManual},
			metav1.Condition{Type: v1alpha1.ConditionScalingLimited, Status: metav1.ConditionTrue, Reason: "MinReplicas"})
	}
	const first = "backlog 1200, in flight 50, 6/8 workers ready, 5 busy: Demand"
	for title, row := range map[string]struct {
		before, after *v1alpha1.WorkerPool
		want          []string
	}{
		"the first state":                 {nil, mailersPool(), []string{first}},
		"no change":                       {mailersPool(), mailersPool(), nil},
		"a change":                        {mailersPool(), mailersPool(draining), []string{"backlog 1200, in flight 50, 6/6 workers ready, 5 busy, 2 draining: Demand"}},
		"a new problem":                   {mailersPool(), mailersPool(degraded), []string{"CrashLoop: mailers-2-x has restarted 5 times"}},
		"a known problem":                 {mailersPool(degraded), mailersPool(degraded), nil},
		"conditions that repeat the spec": {nil, mailersPool(repeating), []string{first}},
		"a problem in the first state":    {nil, mailersPool(degraded), []string{first, "CrashLoop: mailers-2-x has restarted 5 times"}},
		"no reason without autoscaling":   {nil, mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Spec.Autoscaling = nil }), []string{"backlog 1200, in flight 50, 6/8 workers ready, 5 busy"}},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, texts(PoolChanges(row.before, row.after))) })
	}
}

func poolWithDecision(changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	return mailersPool(append([]func(*v1alpha1.WorkerPool){func(wp *v1alpha1.WorkerPool) {
		wp.Status.LastDecision = &v1alpha1.ScaleDecision{
			Time: &metav1.Time{Time: startTime.Add(-3 * time.Second)}, Recommendation: 13, Explanation: v1alpha1.Explanation{Reason: "MaxReplicas", Message: "13 recommended, scaling from 8 to 12: maxReplicas is 12; B = 1200 waiting messages, the oldest for 12s, F = 50 running; c = 10 handlers per worker; F: 50 handlers"},
		}
	}}, changes...)...)
}

func TestPoolExplanation(t *testing.T) {
	for title, row := range map[string]struct {
		pool *v1alpha1.WorkerPool
		want []string
	}{
		"each term of the formula": {poolWithDecision(), []string{
			"mailers   8 workers, 6 ready",
			"  MaxReplicas: 13 recommended, scaling from 8 to 12: maxReplicas is 12 (3s ago)",
			"    B = 1200 waiting messages, the oldest for 12s, F = 50 running",
			"    c = 10 handlers per worker",
			"    F: 50 handlers",
			"  13 recommended, 8 desired.",
			"  Limits: 1 to 12 workers, p95 wait 30s.",
		}},
		"without autoscaling": {
			mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Spec.Autoscaling, wp.Spec.Replicas = nil, new(int32(8)) }),
			[]string{"mailers   8 workers, 6 ready", "  Manual: spec.replicas is 8, and autoscaling is off"},
		},
		"before the first decision": {
			mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Status = v1alpha1.WorkerPoolStatus{} }),
			[]string{"mailers   0 workers, 0 ready", "  no scaling decision yet"},
		},
		"without metrics": {
			poolWithDecision(func(wp *v1alpha1.WorkerPool) {
				wp.Status.LastDecision = &v1alpha1.ScaleDecision{
					Recommendation: 8, Explanation: v1alpha1.Explanation{Reason: "MetricsUnavailable", Message: "8 recommended: the backlog is unknown, so the number stays the same"},
				}
				stale := conditions(v1alpha1.ConditionScalingActive, "False", v1alpha1.ReasonMetricsStale, "the broker\nis unreachable")
				wp.Status.Conditions = append(wp.Status.Conditions, stale...)
			}),
			[]string{
				"mailers   8 workers, 6 ready",
				"  MetricsUnavailable: 8 recommended: the backlog is unknown, so the number stays the same",
				"  8 recommended, 8 desired.",
				"  Limits: 1 to 12 workers, p95 wait 30s.",
				"  MetricsStale: the broker is unreachable",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, PoolExplanation(terminal.Style{}, row.pool, startTime))
		})
	}
}

func TestQueueTable(t *testing.T) {
	mail := &v1alpha1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "data", CreationTimestamp: metav1.Time{Time: startTime}},
		Status: v1alpha1.QueueStatus{
			Engine: v1alpha1.EngineNATS, MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(12)), InFlight: new(int64(0)), WaitP95: &metav1.Duration{Duration: 250 * time.Millisecond}}, Dead: new(int64(3)),
			OldestTime:     &metav1.Time{Time: startTime.Add(time.Minute)},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConnectionFailed}}},
		},
	}
	withoutStatus := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "data"}}
	deleted := mail.DeepCopy()
	deleted.Name, deleted.DeletionTimestamp = "old", &metav1.Time{Time: startTime}
	want := []string{
		"NAMESPACE   NAME   STATUS             BACKLOG   IN FLIGHT   DELAYED   DEAD   OLDEST   P95 WAIT   ENGINE   AGE",
		"data        mail   ConnectionFailed   12        0           -         3      60s      250ms      NATS     2m",
		"data        new    Pending            -         -           -         -      -        -          -",
		"data        old    Deleting           12        0           -         3      60s      250ms      NATS     2m",
	}
	got := QueueTable(terminal.Style{}, []*v1alpha1.Queue{mail, withoutStatus, deleted}, startTime.Add(2*time.Minute)).Lines(true)
	require.Equal(t, want, got)
}

func TestSparklineIsScaledToTheLargestValue(t *testing.T) {
	for title, row := range map[string]struct {
		values []int64
		want   string
	}{
		"no values":  {nil, ""},
		"only zeros": {[]int64{0, 0}, "▁▁"},
		"the largest value has the highest level": {[]int64{0, 50, 100}, "▁▄█"},
		"a small value does not look like zero":   {[]int64{1, 1000}, "▂█"},
		"very large values":                       {[]int64{1 << 62, 1 << 62}, "██"},
		"a negative value looks like zero":        {[]int64{-5, 7}, "▁█"},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, Sparkline(row.values)) })
	}
}

func TestWorkerBarShowsReadyAndStartingWorkers(t *testing.T) {
	for title, row := range map[string]struct {
		ready, desired, limit int32
		want                  string
	}{
		"no workers":                             {0, 0, 10, "············"},
		"all workers of the limit":               {10, 10, 10, "████████████"},
		"a quarter ready and a quarter starting": {3, 6, 12, "███▒▒▒······"},
		"one worker of a high limit":             {1, 1, 10_000, "█···········"},
		"one starting worker is visible":         {100, 101, 1000, "█▒··········"},
		"more workers than the limit":            {6, 3, 3, "████████████"},
		"a limit of zero":                        {0, 0, 0, "············"},
		"very large numbers":                     {1 << 30, 1 << 30, 1<<31 - 1, "██████······"},
		"fewer desired than ready":               {4, 2, 12, "████········"},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, WorkerBar(row.ready, row.desired, row.limit)) })
	}
}

var explanationTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func unschedulablePod(name string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/5 nodes have nvidia.com/gpu",
	}}
	return pod
}

func podWithContainer(status corev1.ContainerStatus) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	status.Name = "main"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return pod
}

func warning(uid, reason, message string) corev1.Event {
	return corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, InvolvedObject: corev1.ObjectReference{UID: types.UID(uid)}}
}

func terminated(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.NewTime(explanationTime.Add(-time.Minute)),
	}}
}

var runningState = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(explanationTime.Add(-time.Hour))}}

// Each kind of stuck Job has a cause and a command that shows more about it.
func TestAnExplanationNamesTheCauseAndACommand(t *testing.T) {
	waiting := func(reason, message string) corev1.Pod {
		return podWithContainer(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
	}
	evicted := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "team-a"}, Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}}
	terminating := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "team-a", DeletionTimestamp: new(metav1.NewTime(explanationTime.Add(time.Hour))), DeletionGracePeriodSeconds: new(int64(3600))},
		Spec:       corev1.PodSpec{NodeName: "node-3"},
	}
	gated := unschedulablePod("p")
	gated.Status.Conditions[0].Reason, gated.Status.Conditions[0].Message = corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates"
	beside := func(state corev1.ContainerState, other string) corev1.Pod {
		pod := podWithContainer(corev1.ContainerStatus{State: state})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: other, Image: "proxy:1", State: runningState, Ready: true})
		return pod
	}
	initializing := podWithContainer(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}})
	initializing.Spec.InitContainers = []corev1.Container{{Name: "download"}}
	initializing.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "download", State: runningState}}
	sidecar := podWithContainer(corev1.ContainerStatus{State: runningState, Ready: true})
	sidecar.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	sidecar.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: runningState}}
	backOff := func(name string) corev1.Pod {
		pod := waiting("CrashLoopBackOff", "back-off 20s restarting failed container=main pod="+name+"_team-a(f104c646-d8b7)")
		pod.Name = name
		pod.Status.ContainerStatuses[0].LastTerminationState = terminated(137, "OOMKilled", "")
		return pod
	}
	refused := func(message string) []corev1.Event {
		return []corev1.Event{warning("job", "FailedCreate", `Error creating: pods "etl-x7k2p" is forbidden: `+message), warning("job", "FailedCreate", `Error creating: pods "etl-9q4zt" is forbidden: `+message)}
	}
	for name, row := range map[string]struct {
		pods           []corev1.Pod
		events         []corev1.Event
		cause, command string
	}{
		"Pods that fit no node":         {[]corev1.Pod{unschedulablePod("a"), unschedulablePod("b")}, nil, "Unschedulable: 2 Pods without a node: 0/5 nodes have nvidia.com/gpu", "kubectl describe pod a -n team-a"},
		"a Pod with a scheduling gate":  {[]corev1.Pod{gated}, nil, "SchedulingGated: 1 Pod without a node: Scheduling is blocked due to non-empty scheduling gates", "kubectl describe pod p -n team-a"},
		"an image that is not there":    {[]corev1.Pod{waiting("ImagePullBackOff", "not found")}, nil, "ImagePullBackOff: 1 Pod with container main, which waits: not found", "kubectl describe pod p -n team-a"},
		"a missing Secret":              {[]corev1.Pod{waiting("CreateContainerConfigError", `secret "db" not found`)}, nil, `CreateContainerConfigError: 1 Pod with container main, which waits: secret "db" not found`, "kubectl describe pod p -n team-a"},
		"a command that does not exist": {[]corev1.Pod{podWithContainer(corev1.ContainerStatus{State: terminated(128, "StartError", `exec: "nope": not found`)})}, nil, `StartError: 1 Pod with container main, which exited with code 128 (StartError): exec: "nope": not found (60s ago)`, "kubectl logs p -n team-a -c main --tail=50"},
		"containers that crash": {
			[]corev1.Pod{backOff("etl-x7k2p"), backOff("etl-9q4zt")},
			nil,
			"CrashLoopBackOff: 2 Pods with container main, which waits: back-off 20s restarting failed container=main, last exited with code 137 (OOMKilled) (60s ago)", "kubectl logs etl-x7k2p -n team-a -c main --tail=50 --previous",
		},
		"a container that failed, with its message":  {[]corev1.Pod{podWithContainer(corev1.ContainerStatus{State: terminated(3, "Error", "no rows\nin orders")})}, nil, "Error: 1 Pod with container main, which exited with code 3: no rows in orders (60s ago)", "kubectl logs p -n team-a -c main --tail=50"},
		"an injected sidecar that runs on":           {[]corev1.Pod{beside(terminated(0, "Completed", ""), "proxy")}, nil, "SidecarRunsOn: 1 Pod with container main, which ended with exit code 0, while container proxy runs on (60s ago)", "kubectl logs p -n team-a -c proxy --tail=50"},
		"an injected sidecar that hides a failure":   {[]corev1.Pod{beside(terminated(1, "Error", ""), "proxy")}, nil, "SidecarRunsOn: 1 Pod with container main, which ended with exit code 1, while container proxy runs on (60s ago)", "kubectl logs p -n team-a -c proxy --tail=50"},
		"one of the Job's containers runs on":        {[]corev1.Pod{beside(terminated(0, "Completed", ""), "helper")}, nil, "ContainerEnded: 1 Pod with container main, which ended with exit code 0, while container helper runs on (60s ago)", "kubectl logs p -n team-a -c helper --tail=50"},
		"an init container at work":                  {[]corev1.Pod{initializing}, nil, "Initializing: 1 Pod with init container download at work (60m ago)", "kubectl logs p -n team-a -c download --tail=50"},
		"a container that is not ready":              {[]corev1.Pod{podWithContainer(corev1.ContainerStatus{State: runningState})}, nil, "NotReady: 1 Pod with container main, which runs but is not ready (60m ago)", "kubectl describe pod p -n team-a"},
		"an evicted Pod":                             {[]corev1.Pod{evicted}, nil, "Evicted: 1 Pod failed: The node was low on resource: memory.", "kubectl describe pod p -n team-a"},
		"a Pod that does not terminate":              {[]corev1.Pod{terminating}, nil, "Terminating: 1 Pod on node node-3 (0s ago)", "kubectl get node node-3"},
		"an exhausted quota, several times":          {nil, refused("exceeded quota: team-a, requested: pods=1, used: pods=0, limited: pods=0"), "FailedCreate: pods is forbidden: exceeded quota: team-a, requested: pods=1, used: pods=0, limited: pods=0", "kubectl describe resourcequota -n team-a"},
		"a quota that needs requests":                {nil, refused("failed quota: team-a: must specify cpu"), "FailedCreate: pods is forbidden: failed quota: team-a: must specify cpu", "kubectl describe resourcequota -n team-a"},
		"a LimitRange":                               {nil, refused("maximum memory usage per Container is 1Gi, but limit is 2Gi"), "FailedCreate: pods is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi", "kubectl describe limitrange -n team-a"},
		"PodSecurity":                                {nil, refused(`violates PodSecurity "restricted:latest"`), `FailedCreate: pods is forbidden: violates PodSecurity "restricted:latest"`, "kubectl describe namespace team-a"},
		"a missing ServiceAccount":                   {nil, refused(`error looking up service account team-a/nope: serviceaccount "nope" not found`), `FailedCreate: pods is forbidden: error looking up service account team-a/nope: serviceaccount "nope" not found`, "kubectl get serviceaccounts -n team-a"},
		"another admission policy":                   {nil, refused("admission webhook denied the request"), "FailedCreate: pods is forbidden: admission webhook denied the request", "kubectl describe job etl -n team-a"},
		"an event that repeats a condition":          {[]corev1.Pod{unschedulablePod("a")}, []corev1.Event{warning("a", "FailedScheduling", "0/5 nodes")}, "Unschedulable: 1 Pod without a node: 0/5 nodes have nvidia.com/gpu", "kubectl describe pod a -n team-a"},
		"a Pod that starts":                          {[]corev1.Pod{waiting("ContainerCreating", "")}, nil, "", "kubectl describe job etl -n team-a"},
		"a Pod that works beside its native sidecar": {[]corev1.Pod{sidecar}, nil, "", "kubectl describe job etl -n team-a"},
		"an event that is no warning":                {nil, []corev1.Event{{Type: corev1.EventTypeNormal, Reason: "SuccessfulCreate", Message: "x"}}, "", "kubectl describe job etl -n team-a"},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "etl", Namespace: "team-a"}}
			job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}, {Name: "helper"}}
			for i := range row.pods {
				row.pods[i].Namespace = "team-a"
			}
			explanation := ExplainJob(&JobDetails{
				Job: job, Pods: row.pods, Events: row.events,
				Finding: jobreport.Finding{Category: jobreport.CategoryZombie, Reason: jobreport.ReasonNoReadyPods},
			})
			text := strings.Join(explanation.Lines(terminal.Style{}, explanationTime), "\n")
			hasCause := strings.Contains(text, "\n  cause ")
			require.True(t, hasCause == (row.cause != "") && strings.Contains(text, row.cause+"\n"), "missing the cause %q:\n%s", row.cause, text)
			require.Equal(t, row.command, explanation.Command)
		})
	}
}

func TestAJobExplanationEndsWithTheNextStepAndTheLog(t *testing.T) {
	job := &batchv1.Job{}
	job.Name, job.Namespace = "train", "team-a"
	job.Status.Active, job.Status.Ready, job.Status.FailedIndexes = 2, new(int32(0)), new("1,3-5")
	explanation := ExplainJob(&JobDetails{
		Job: job, Pods: []corev1.Pod{podWithContainer(corev1.ContainerStatus{Image: "etl:1", State: terminated(3, "Error", "")})},
		Finding: jobreport.Finding{Category: jobreport.CategoryZombie, Reason: jobreport.ReasonStuckTerminating, Message: "waiting for finalizer x", Since: explanationTime.Add(-48 * time.Hour)},
	})
	explanation.Log = []string{"connecting", "\x1b[31mno route\x1b[0m"}
	want := `job.batch/train   Zombie   StuckTerminating   for 2d
  message          waiting for finalizer x
  pods             2 active, 0 ready, 0 succeeded, 0 failed
  indexes failed   1,3-5
  cause            Error: 1 Pod with container main, which exited with code 3 (60s ago)
  image            etl:1
  next             Check the nodes of Pods that do not terminate. If the controller of the finalizer no longer runs, remove the finalizer with kubectl edit.
  command          kubectl get pods -n team-a -l batch.kubernetes.io/job-name=train -o wide
  log of           p main
    connecting
    `
	got := strings.Join(explanation.Lines(terminal.Style{}, explanationTime), "\n")
	require.True(t, strings.HasPrefix(got, want) && !strings.Contains(got, "\x1b"), "explanation (-want +got):\n%s", cmp.Diff(want, got))
}
