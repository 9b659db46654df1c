package render

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// SequenceDetail renders one SequentialJob: its phase, its problems and each step.
func SequenceDetail(s terminal.Style, sj *v1alpha1.SequentialJob, now time.Time) []string {
	lines := []string{sequenceHeader(s, sj, now)}
	for _, problem := range sequenceProblems(sj) {
		lines = append(lines, "  "+s.Colorize(terminal.Yellow, problem.String()))
	}
	var rows [][]string
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		name := step.Name
		if step.Finally {
			name += s.Colorize(terminal.Dim, " (finally)")
		}
		_, color := stepSymbol(step)
		rows = append(rows, []string{
			coloredSymbol(s, step) + " " + name, s.Colorize(color, string(step.Phase)), stepDuration(step, now), stepRemark(sj, step),
		})
	}
	return append(lines, indentedColumns(rows)...)
}

func sequenceHeader(s terminal.Style, sj *v1alpha1.SequentialJob, now time.Time) string {
	parts := []string{s.Bold(sj.Name), coloredPhase(s, sj)}
	if sj.Status.Run > 1 {
		parts = append(parts, fmt.Sprintf("run %d", sj.Status.Run))
	}
	parts = append(parts, sj.Status.Progress.Display, runDuration(&sj.Status, now))
	return strings.Join(slices.DeleteFunc(parts, isEmpty), "   ")
}

func isEmpty(text string) bool { return text == "" }

var sequenceProblemConditions = []problemCondition{
	{v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse},
	{v1alpha1.ConditionResourcesUnavailable, metav1.ConditionTrue},
	{v1alpha1.ConditionNameConflict, metav1.ConditionTrue},
}

func sequenceProblems(sj *v1alpha1.SequentialJob) []Problem {
	return findProblems(sj.Status.Conditions, sequenceProblemConditions, func(*metav1.Condition) bool { return false })
}

func stepDuration(step *v1alpha1.StepStatus, now time.Time) string {
	if step.FinishTime != nil {
		now = step.FinishTime.Time
	}
	return elapsedSince(step.StartTime, now)
}

// stepRemark is what else is worth showing about a step: an earlier run or a repeated
// attempt, the cause of a failure, and the output.
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
	cause := slices.DeleteFunc([]string{step.Reason, terminal.Sanitize(step.Message)}, isEmpty)
	if len(cause) > 0 {
		parts = append(parts, strings.Join(cause, ": "))
	}
	if step.Output != "" {
		parts = append(parts, "output: "+terminal.Sanitize(step.Output))
	}
	return strings.Join(parts, ", ")
}
