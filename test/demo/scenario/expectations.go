// Package scenario contains the expectations of the demo: how each example ends, which actions
// the demo applies to it, and which logs and outputs show that it worked.
//
// Its functions are pure: they compare objects with the expectations.
package scenario

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
)

// Example is one file of examples/sequentialjob.
type Example struct {
	// File is a file in examples/sequentialjob. Without .yaml it is the SequentialJob's name.
	File string
	// Missing is what the example needs and the demo's cluster does not have. Such an example is not applied.
	Missing string
	Refused string                               // part of the message with which the API server refuses the example
	Action  *Action[v1alpha1.SequentialJobPhase] // what the demo does to the example, or nil
	// Phase and Run are the expected final values.
	Phase v1alpha1.SequentialJobPhase
	Run   int32
	Steps []ExpectedStep // the expected steps in order
}

// ExpectedStep is the expected final state of a step.
type ExpectedStep struct {
	Name  string
	Phase v1alpha1.StepPhase
	// Run is the run of the outcome. 0 means the last run.
	Run         int32
	Output      string // the output in the status
	LogContains string // a part of its log
}

// Action is a change that the demo makes to an object.
type Action[Phase ~string] struct {
	// The action is due when the object has been in the phase When for the time After, so that viewers notice the phase.
	When        Phase
	After       time.Duration
	Description string // printed before the action
	Patch       string
	Type        types.PatchType
}

// ManifestPath returns the path of the manifest in examples/.
func (e *Example) ManifestPath() string { return "sequentialjob/" + e.File }

// ObjectName returns the name of the SequentialJob.
func (e *Example) ObjectName() string { return strings.TrimSuffix(e.File, ".yaml") }

// IsApplied reports whether the example is created in the cluster.
func (e *Example) IsApplied() bool { return e.Missing == "" && e.Refused == "" }

// KubectlCommand returns the kubectl command for the action.
func (a *Action[Phase]) KubectlCommand(namespace, kind, name string) string {
	patchType := "merge"
	if a.Type == types.JSONPatchType {
		patchType = "json"
	}
	return fmt.Sprintf("kubectl -n %s patch %s %s --type=%s -p '%s'", namespace, kind, name, patchType, a.Patch)
}

// IsDue reports whether it is time for the action. The caller must apply it only once.
func (a *Action[Phase]) IsDue(phase Phase, inPhaseFor time.Duration) bool {
	return a != nil && phase == a.When && inPhaseFor >= a.After
}

// IsFinished reports whether the example has finished and its action has been applied.
func (e *Example) IsFinished(sj *v1alpha1.SequentialJob, actionDone bool) bool {
	if sj.Status.CompletionTime == nil {
		return false
	}
	awaitsAction := e.Action != nil && !actionDone && sj.Status.Phase == e.Action.When
	return !awaitsAction && (!actionDone || sj.Status.Run >= e.Run)
}

// Mismatches returns the differences between the final state and the expectation.
func (e *Example) Mismatches(sj *v1alpha1.SequentialJob, logOf func(step *v1alpha1.StepStatus) string) []string {
	var mismatches []string
	add := func(format string, args ...any) { mismatches = append(mismatches, fmt.Sprintf(format, args...)) }
	if sj.Status.Phase != e.Phase {
		add("phase is %q, expected %q", sj.Status.Phase, e.Phase)
	}
	if sj.Status.Run != e.Run {
		add("run is %d, expected %d", sj.Status.Run, e.Run)
	}
	if len(sj.Status.Steps) != len(e.Steps) {
		add("it has %d steps, expected %d", len(sj.Status.Steps), len(e.Steps))
		return mismatches
	}
	for i := range e.Steps {
		for _, text := range e.Steps[i].mismatches(&sj.Status.Steps[i], e.Run, logOf) {
			add("step %s %s", e.Steps[i].Name, text)
		}
	}
	return mismatches
}

func (s *ExpectedStep) mismatches(actual *v1alpha1.StepStatus, run int32, logOf func(*v1alpha1.StepStatus) string) []string {
	if actual.Name != s.Name {
		return []string{fmt.Sprintf("expected instead of step %s", actual.Name)}
	}
	var mismatches []string
	if actual.Phase != s.Phase {
		mismatches = append(mismatches, fmt.Sprintf("ended as %s, expected %s", actual.Phase, s.Phase))
	}
	if s.Run != 0 {
		run = s.Run
	}
	if actual.Run != run && s.Phase != v1alpha1.StepSkipped {
		mismatches = append(mismatches, fmt.Sprintf("ended in run %d, expected run %d", actual.Run, run))
	}
	if actual.Output != s.Output {
		mismatches = append(mismatches, fmt.Sprintf("has the output %q, expected %q", actual.Output, s.Output))
	}
	if s.LogContains != "" && !strings.Contains(logOf(actual), s.LogContains) {
		mismatches = append(mismatches, fmt.Sprintf("did not log %q", s.LogContains))
	}
	return mismatches
}

// Examples returns all examples of examples/sequentialjob in the order of the demo.
func Examples() []Example {
	return []Example{
		completedExample("minimal.yaml", succeededStep("hello", "hello"), succeededStep("goodbye", "goodbye")),
		completedExample("etl-pipeline.yaml",
			ExpectedStep{Name: "extract", Phase: v1alpha1.StepSucceeded, Output: "240", LogContains: "extracted 240 orders"},
			succeededStep("transform", "extract reported 240 orders, the workspace contains 240"),
			ExpectedStep{Name: "load", Phase: v1alpha1.StepSucceeded, Output: "3 regions", LogContains: "north,1990"},
			succeededStep("clean-up", "loaded 3 regions from 240 orders; left in the workspace: warehouse")),
		failingMigration(),
		suspendedReport(),
		{
			File:  "image-pull-deadline.yaml",
			Phase: v1alpha1.PhaseFailed,
			Run:   1,
			Steps: []ExpectedStep{
				{Name: "unreachable", Phase: v1alpha1.StepFailed},
				{Name: "never-reached", Phase: v1alpha1.StepSkipped},
				succeededStep("notify", "the run has ended"),
			},
		},
		completedExample("retry.yaml", succeededStep("download", "downloaded in the second attempt"), succeededStep("import", "imported")),
		completedExample("on-failure-continue.yaml",
			succeededStep("build", ""),
			ExpectedStep{Name: "lint", Phase: v1alpha1.StepFailed, LogContains: "line 7 is too long"},
			succeededStep("package", "packaged")),
		completedExample("indexed-parallel.yaml", succeededStep("render", "frame 5 of 6"), succeededStep("assemble", "")),
		{File: "invalid-typo.yaml", Refused: `spec.containers[1].volumeMounts[0].name: Not found: "cahce"`},
		{File: "kueue.yaml", Missing: "Kueue and a LocalQueue"},
	}
}

func completedExample(file string, steps ...ExpectedStep) Example {
	return Example{File: file, Phase: v1alpha1.PhaseCompleted, Run: 1, Steps: steps}
}

func succeededStep(name, logContains string) ExpectedStep {
	return ExpectedStep{Name: name, Phase: v1alpha1.StepSucceeded, LogContains: logContains}
}

func failingMigration() Example {
	example := completedExample("failing-migration.yaml",
		ExpectedStep{Name: "backup", Phase: v1alpha1.StepSucceeded, Run: 1, LogContains: "backed up schema version 5"},
		succeededStep("migrate", "the schema is at version 7"),
		succeededStep("seed", "seeded"),
		succeededStep("verify", "at version 7, backup of 5 kept"))
	example.Run = 2
	example.Action = &Action[v1alpha1.SequentialJobPhase]{
		When:        v1alpha1.PhaseFailed,
		After:       2 * time.Second,
		Description: "failing-migration failed at its second step. Fixing the cause and rerunning from the failed step:",
		Type:        types.JSONPatchType,
		Patch: `[{"op":"replace","path":"/spec/template/spec/containers/0/env/0/value","value":"7"},` +
			`{"op":"add","path":"/spec/rerun","value":{"id":"target-7","from":"Failed"}}]`,
	}
	return example
}

func suspendedReport() Example {
	example := completedExample("suspended-report.yaml", succeededStep("collect", "collected"), succeededStep("publish", "published"))
	example.Action = &Action[v1alpha1.SequentialJobPhase]{
		When:        v1alpha1.PhaseSuspended,
		After:       8 * time.Second,
		Description: "suspended-report is suspended. Resuming it:",
		Type:        types.MergePatchType,
		Patch:       `{"spec":{"suspend":false}}`,
	}
	return example
}

// The files of examples/agenticsession that the demo uses. The other files are for runners that call a model.
const (
	// SessionsFile contains the sessions that run.
	SessionsFile = "agenticsession/echo.yaml"
	// RefusedSessionFile contains a session that is refused with RefusedSessionMessage.
	RefusedSessionFile    = "agenticsession/refused.yaml"
	RefusedSessionMessage = "the URL must not contain credentials"
)

// SessionExample is a session of SessionsFile and its expected end.
type SessionExample struct {
	Name     string
	Actions  []Action[v1alpha1.SessionPhase] // what the demo does to the session, in order
	Phase    v1alpha1.SessionPhase
	Attempts []string // the expected outcomes of the attempts, with their reasons
	// Summary is the expected summary, and Cost the expected total cost.
	Summary string
	Cost    v1alpha1.Number
}

// SessionExamples returns all sessions of SessionsFile in the order of the demo.
func SessionExamples() []SessionExample {
	return []SessionExample{
		{
			Name:     "retry",
			Phase:    v1alpha1.SessionCompleted,
			Attempts: []string{"Retried: ExitedWithError", "Completed"},
			Summary:  "Echoed 2 lines", Cost: "0.24",
		},
		{
			Name: "pause",
			Actions: []Action[v1alpha1.SessionPhase]{
				{v1alpha1.SessionRunning, 3 * time.Second, "pause is running. Stopping it:", `{"spec":{"suspend":true}}`, types.MergePatchType},
				{v1alpha1.SessionStopped, 2 * time.Second, "Its workspace is kept. Restarting it:", `{"spec":{"suspend":false}}`, types.MergePatchType},
			},
			Phase:    v1alpha1.SessionCompleted,
			Attempts: []string{"Stopped: User", "Completed"},
			// The workspace contains the progress before the stop, so the runner does not repeat it.
			Summary: "Echoed 1 lines, resumed after line 1",
		},
		{Name: "slow", Phase: v1alpha1.SessionFailed, Attempts: []string{"Failed: DeadlineExceeded"}, Summary: "Echoed 1 lines"},
	}
}

// DueAction returns the next action if it is due, otherwise nil. done is the number of applied actions.
func (e *SessionExample) DueAction(s *v1alpha1.AgenticSession, done int, inPhaseFor time.Duration) *Action[v1alpha1.SessionPhase] {
	if done < len(e.Actions) && e.Actions[done].IsDue(s.Status.Phase, inPhaseFor) {
		return &e.Actions[done]
	}
	return nil
}

// IsFinished reports whether the session has completed or failed.
func (*SessionExample) IsFinished(s *v1alpha1.AgenticSession) bool {
	return s.Status.Phase == v1alpha1.SessionCompleted || s.Status.Phase == v1alpha1.SessionFailed
}

// Mismatches returns the differences between the final state and the expectation.
func (e *SessionExample) Mismatches(s *v1alpha1.AgenticSession) []string {
	var mismatches []string
	compare := func(what, got, want string) {
		if got != want {
			mismatches = append(mismatches, fmt.Sprintf("%s is %q, expected %q", what, got, want))
		}
	}
	compare("phase", string(s.Status.Phase), string(e.Phase))
	for i := range max(len(e.Attempts), len(s.Status.Attempts)) {
		var got, want string
		if i < len(s.Status.Attempts) {
			got = describeRunEnd(&s.Status.Attempts[i])
		}
		if i < len(e.Attempts) {
			want = e.Attempts[i]
		}
		compare(fmt.Sprintf("outcome of attempt %d", i+1), got, want)
	}
	var summary string
	if s.Status.Result != nil {
		summary = s.Status.Result.Summary
	}
	compare("summary", summary, e.Summary)
	var cost v1alpha1.Number
	if s.Status.TotalCostUSD != nil {
		cost = *s.Status.TotalCostUSD
	}
	compare("cost", string(cost), string(e.Cost))
	return mismatches
}

// describeRunEnd returns an attempt's outcome, and its reason if that differs.
func describeRunEnd(run *v1alpha1.SessionAttempt) string {
	if run.Reason == string(run.Outcome) {
		return run.Reason
	}
	return fmt.Sprintf("%s: %s", run.Outcome, run.Reason)
}

// StaleJob is a Job of examples/jobreport and its expected finding.
type StaleJob struct {
	// Name is the name of the Job. With .yaml it is the name of the file.
	Name string
	// Category and Reason are the expected classification with DemoThresholds.
	Category jobreport.Category
	Reason   jobreport.Reason
}

// StaleJobs returns all Jobs of examples/jobreport in the order of the demo.
func StaleJobs() []StaleJob {
	return []StaleJob{
		{"failed", jobreport.CategorySuspicious, jobreport.ReasonBackoffLimitExceeded},
		{"hanging", jobreport.CategoryZombie, jobreport.ReasonRunningTooLong},
		{"never-starting", jobreport.CategoryZombie, jobreport.ReasonNoReadyPods},
		{"suspended", jobreport.CategorySuspicious, jobreport.ReasonSuspendedTooLong},
		{"healthy", jobreport.CategoryHealthy, ""},
	}
}

// DemoThresholds returns thresholds that are short enough for a demo.
func DemoThresholds() jobreport.Thresholds {
	thresholds := jobreport.DefaultThresholds()
	*thresholds[jobreport.ReasonNoReadyPods] = jobreport.Threshold{Suspicious: 5 * time.Second, Zombie: 15 * time.Second}
	*thresholds[jobreport.ReasonRunningTooLong] = jobreport.Threshold{Suspicious: 5 * time.Second, Zombie: 15 * time.Second}
	thresholds[jobreport.ReasonSuspendedTooLong].Suspicious = 5 * time.Second
	return thresholds
}

// ManifestPath returns the path of the manifest in examples/.
func (j *StaleJob) ManifestPath() string { return "jobreport/" + j.Name + ".yaml" }

// Finding returns the report's finding about the Job, or nil.
func (j *StaleJob) Finding(status *v1alpha1.JobReportStatus) *v1alpha1.JobFinding {
	for i := range status.Findings {
		if status.Findings[i].Name == j.Name {
			return &status.Findings[i]
		}
	}
	return nil
}

// Mismatch describes how the finding differs from the expectation, or returns "".
func (j *StaleJob) Mismatch(status *v1alpha1.JobReportStatus) string {
	got, want := "no finding", "no finding"
	if finding := j.Finding(status); finding != nil {
		got = fmt.Sprintf("%s (%s)", finding.Category, finding.Reason)
	}
	if j.Category != jobreport.CategoryHealthy {
		want = fmt.Sprintf("%s (%s)", j.Category, j.Reason)
	}
	if got != want {
		return fmt.Sprintf("%s: the report has %s, expected %s", j.Name, got, want)
	}
	return ""
}
