package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// maxStepSymbols is the number of steps up to which each step has a symbol. With more steps, the table shows the count of completed
// steps.
const maxStepSymbols = 24

// SequenceTable renders SequentialJobs with a symbol for each step.
func SequenceTable(s terminal.Style, sjs []*v1alpha1.SequentialJob, now time.Time) *Table {
	// The column of the current step is as wide as the longest name of any step, so that it keeps its width while a watch redraws the
	// table.
	widest := 0
	for _, sj := range sjs {
		for i := range sj.Status.Steps {
			widest = max(widest, len(sj.Status.Steps[i].Name))
		}
	}
	table := newTable(s, nameHeader, "STATUS", "REASON", "STEPS", "STEP", "TIME", "AGE")
	for _, sj := range sjs {
		step := fmt.Sprintf("%-*s", widest, sj.Status.Progress.CurrentStep)
		table.addRow(sj.Namespace,
			sj.Name, coloredPhase(s, sj), terminal.Sanitize(sj.Status.Reason), stepSymbols(s, sj), step, runDuration(&sj.Status, now), formatAge(sj.CreationTimestamp, now))
	}
	return table
}

// SequencePhase returns the phase, or Pending before the operator has set it.
func SequencePhase(sj *v1alpha1.SequentialJob) v1alpha1.SequentialJobPhase {
	return cmp.Or(sj.Status.Phase, v1alpha1.PhasePending)
}

func coloredPhase(s terminal.Style, sj *v1alpha1.SequentialJob) string {
	return s.Colorize(cmp.Or(sequencePhaseColors[sj.Status.Phase], terminal.Dim), string(SequencePhase(sj)))
}

// stepSymbols returns a symbol for each step, with a bar before the steps with finally.
func stepSymbols(s terminal.Style, sj *v1alpha1.SequentialJob) string {
	steps := sj.Status.Steps
	if len(steps) > maxStepSymbols {
		return sequentialjob.FormatProgress(sj, false)
	}
	var text strings.Builder
	afterFinally := false
	for i := range steps {
		finally := sequentialjob.IsFinally(&sj.Spec, steps[i].Name)
		if finally && !afterFinally {
			text.WriteString(s.Colorize(terminal.Dim, "|"))
		}
		afterFinally = finally
		text.WriteString(coloredSymbol(s, &steps[i]))
	}
	return text.String()
}

// runDuration is the time from the run's start to its end, or to now.
func runDuration(status *v1alpha1.SequentialJobStatus, now time.Time) string {
	if status.CompletionTime != nil {
		now = status.CompletionTime.Time
	}
	return elapsedSince(status.StartTime, now)
}

func coloredSymbol(s terminal.Style, step *v1alpha1.StepStatus) string {
	symbol, color := stepSymbol(step)
	return s.Colorize(color, symbol)
}

func stepSymbol(step *v1alpha1.StepStatus) (symbol string, color terminal.Color) {
	switch step.Phase {
	case v1alpha1.StepSucceeded:
		return "✔", terminal.Green
	case v1alpha1.StepFailed:
		if step.Tolerated {
			return "✘", terminal.Yellow
		}
		return "✘", terminal.Red
	case v1alpha1.StepStarting, v1alpha1.StepRunning:
		return "▶", terminal.Cyan
	case v1alpha1.StepQueued, v1alpha1.StepSuspended, v1alpha1.StepInterrupted, v1alpha1.StepLost, v1alpha1.StepRetrying:
		return "‖", terminal.Yellow
	case v1alpha1.StepStopping, v1alpha1.StepSuspending:
		return "■", terminal.Yellow
	case v1alpha1.StepSkipped:
		return "-", terminal.Dim
	default:
		return "·", terminal.Dim
	}
}

// sequencePhaseColors has no entry for phases in which nothing runs yet.
var sequencePhaseColors = map[v1alpha1.SequentialJobPhase]terminal.Color{
	v1alpha1.PhaseCompleted: terminal.Green, v1alpha1.PhaseFailed: terminal.Red, v1alpha1.PhaseRunning: terminal.Cyan,
	v1alpha1.PhaseSuspended: terminal.Yellow, v1alpha1.PhaseTerminating: terminal.Yellow,
}

// StepLegend explains the symbols of steps.
func StepLegend(s terminal.Style) string {
	entry := func(phase v1alpha1.StepPhase, meaning string) string {
		return coloredSymbol(s, &v1alpha1.StepStatus{Phase: phase}) + " " + meaning
	}
	return strings.Join([]string{
		entry(v1alpha1.StepSucceeded, "succeeded"), entry(v1alpha1.StepFailed, "failed"),
		entry(v1alpha1.StepRunning, "running"), entry(v1alpha1.StepPending, "pending"),
		entry(v1alpha1.StepSkipped, "skipped"), s.Colorize(terminal.Dim, "|") + " finally",
	}, "   ")
}

// SequenceDetail renders one SequentialJob: its phase, its problems and each step.
func SequenceDetail(s terminal.Style, sj *v1alpha1.SequentialJob, now time.Time) []string {
	header := []string{s.Bold(sj.Name), coloredPhase(s, sj)}
	if sj.Status.Run > 1 {
		header = append(header, fmt.Sprintf("run %d", sj.Status.Run))
	}
	header = append(header, sequentialjob.FormatProgress(sj, false), runDuration(&sj.Status, now))
	lines := append([]string{joinNonEmpty("   ", header...)}, scheduleLines(new(schedule.RunOfSequentialJob(sj)), metav1.GetControllerOf(sj))...)
	lines = append(lines, problemLines(s, SequenceProblems(sj))...)
	var rows [][]string
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		name := step.Name
		if sequentialjob.IsFinally(&sj.Spec, step.Name) {
			name += s.Colorize(terminal.Dim, " (finally)")
		}
		end := now
		if step.CompletionTime != nil {
			end = step.CompletionTime.Time
		}
		symbol, color := stepSymbol(step)
		rows = append(rows, []string{
			s.Colorize(color, symbol) + " " + name, s.Colorize(color, string(step.Phase)), elapsedSince(step.StartTime, end), stepRemark(sj, step),
		})
	}
	lines = append(lines, indentedColumns(rows)...)
	for _, result := range sj.Status.Results {
		lines = append(lines, "  result "+terminal.Sanitize(result.Name+": "+result.Value))
	}
	if archive := sj.Status.Archive; archive != nil {
		lines = append(lines, "  "+archiveLine(s, archive))
	}
	return lines
}

func archiveLine(s terminal.Style, archive *v1alpha1.SequenceArchiveStatus) string {
	text := fmt.Sprintf("logs of run %d: ", archive.Run)
	switch {
	case archive.CompletionTime == nil:
		return text + joinNonEmpty(": ", "being archived", archive.Reason, terminal.Sanitize(archive.Message))
	case archive.Error != "":
		return s.Colorize(terminal.Yellow, text+joinNonEmpty(": ", "not archived", archive.Reason, terminal.Sanitize(archive.Error)))
	default:
		return text + terminal.Sanitize(archive.Location)
	}
}

var sequenceProblemConditions = []problemCondition{
	{v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse},
	{v1alpha1.ConditionResourcesUnavailable, metav1.ConditionTrue},
	{v1alpha1.ConditionBlocked, metav1.ConditionTrue},
}

// SequenceProblems returns the problems that keep a sequence from making progress.
func SequenceProblems(sj *v1alpha1.SequentialJob) []Problem {
	return findProblems(sj.Status.Conditions, sequenceProblemConditions, func(*metav1.Condition) bool { return false })
}

// AwaitingStep shows what the step runs that waits for an approval.
func AwaitingStep(sj *v1alpha1.SequentialJob) []string {
	job := sequentialjob.AwaitingJob(sj)
	if job == nil {
		return nil
	}
	var lines []string
	show := func(title, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf("%-11s %s", title+":", terminal.Sanitize(value)))
		}
	}
	container := &job.Spec.Template.Spec.Containers[0]
	show("step", container.Name)
	show("image", container.Image)
	show("command", quoted(container.Command))
	show("args", quoted(container.Args))
	show("account", job.Spec.Template.Spec.ServiceAccountName)
	for i := range sj.Status.Parameters {
		show("parameter", sj.Status.Parameters[i].Name+"="+sj.Status.Parameters[i].Value)
	}
	if sj.Status.Approval != nil {
		show("hash", sj.Status.Approval.Hash)
	}
	return lines
}

// quoted shows the words of a command so that the limits between them are visible.
func quoted(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", words)
}

// stepRemark shows further facts about a step: an earlier run or a repeated attempt, the cause of a failure, and the output.
func stepRemark(sj *v1alpha1.SequentialJob, step *v1alpha1.StepStatus) string {
	var parts []string
	if isFromEarlierRun(sj, step) {
		parts = append(parts, fmt.Sprintf("from run %d", step.Run))
	}
	if step.Attempt > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", step.Attempt))
	}
	if step.Tolerated {
		parts = append(parts, "tolerated")
	}
	parts = append(parts, joinNonEmpty(": ", step.Reason, terminal.Sanitize(step.Message)))
	if step.Output != "" {
		parts = append(parts, "output: "+terminal.Sanitize(step.Output))
	}
	return joinNonEmpty(", ", parts...)
}

// SequenceChanges returns a line for each difference between before and after, for output that is not a terminal. A nil before is an
// object without a status.
func SequenceChanges(before, after *v1alpha1.SequentialJob) []Change {
	if before == nil || before.Status.Run != after.Status.Run {
		before = &v1alpha1.SequentialJob{}
	}
	phases := map[string]v1alpha1.StepPhase{}
	for i := range before.Status.Steps {
		phases[before.Status.Steps[i].Name] = before.Status.Steps[i].Phase
	}
	var changes []Change
	for i := range after.Status.Steps {
		step := &after.Status.Steps[i]
		if phases[step.Name] == step.Phase || step.Phase == v1alpha1.StepPending || isFromEarlierRun(after, step) {
			continue
		}
		line := joinNonEmpty(": ", "step "+step.Name, string(step.Phase), stepRemark(after, step))
		changes = append(changes, Change{stepTime(&after.Status, step), line})
	}
	for _, problem := range SequenceProblems(after) {
		if !slices.ContainsFunc(SequenceProblems(before), func(known Problem) bool { return known.String() == problem.String() }) {
			changes = append(changes, Change{problem.Since, problem.String()})
		}
	}
	if before.Status.Phase != after.Status.Phase && after.Status.Phase != "" {
		change := Change{Text: fmt.Sprintf("%s, %s steps", after.Status.Phase, sequentialjob.FormatProgress(after, false))}
		switch after.Status.Phase {
		case v1alpha1.PhaseRunning:
			change.Time = timeOf(after.Status.StartTime)
		case v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed:
			change.Time = timeOf(after.Status.CompletionTime)
		}
		changes = append(changes, change)
	}
	return changes
}

// stepTime returns when the step got its phase; zero if unknown.
func stepTime(status *v1alpha1.SequentialJobStatus, step *v1alpha1.StepStatus) time.Time {
	switch step.Phase {
	case v1alpha1.StepRunning:
		return timeOf(step.StartTime)
	case v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepRetrying:
		return timeOf(step.CompletionTime)
	case v1alpha1.StepSkipped: // at the latest with the end of the run
		return timeOf(cmp.Or(step.CompletionTime, status.CompletionTime))
	default:
		return time.Time{}
	}
}

// isFromEarlierRun reports whether the current run kept the step's outcome from an earlier run.
func isFromEarlierRun(sj *v1alpha1.SequentialJob, step *v1alpha1.StepStatus) bool {
	return step.Run != 0 && step.Run != sj.Status.Run
}
