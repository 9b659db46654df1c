package render

import (
	"fmt"
	"slices"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// SequenceChanges returns a line for each difference between before and after, for output
// that is not a terminal. A nil before stands for an object without a status.
func SequenceChanges(before, after *v1alpha1.SequentialJob) []string {
	if before == nil || before.Status.Run != after.Status.Run {
		before = &v1alpha1.SequentialJob{}
	}
	var lines []string
	for i := range after.Status.Steps {
		step := &after.Status.Steps[i]
		if stepPhase(before, step.Name) == step.Phase || step.Phase == v1alpha1.StepPending || isFromEarlierRun(after, step) {
			continue
		}
		line := fmt.Sprintf("step %s: %s", step.Name, step.Phase)
		if remark := stepRemark(after, step); remark != "" {
			line += ": " + remark
		}
		lines = append(lines, line)
	}
	for _, problem := range sequenceProblems(after) {
		if !slices.Contains(sequenceProblems(before), problem) {
			lines = append(lines, problem.String())
		}
	}
	if before.Status.Phase != after.Status.Phase && after.Status.Phase != "" {
		lines = append(lines, fmt.Sprintf("%s, %s steps", after.Status.Phase, after.Status.Progress.Display))
	}
	return lines
}

// isFromEarlierRun reports whether the current run kept the step's outcome from an earlier
// run.
func isFromEarlierRun(sj *v1alpha1.SequentialJob, step *v1alpha1.StepStatus) bool {
	return step.Run != 0 && step.Run != sj.Status.Run
}

func stepPhase(sj *v1alpha1.SequentialJob, step string) v1alpha1.StepPhase {
	for i := range sj.Status.Steps {
		if sj.Status.Steps[i].Name == step {
			return sj.Status.Steps[i].Phase
		}
	}
	return ""
}
