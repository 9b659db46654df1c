package render

import (
	"fmt"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// maxStepSymbols is the number of steps up to which each step has a symbol. Above it, the
// table shows the count of completed steps.
const maxStepSymbols = 24

// SequenceTable renders SequentialJobs with a symbol for each step.
func SequenceTable(s terminal.Style, sjs []*v1alpha1.SequentialJob, now time.Time) *Table {
	// The column of the current step is as wide as the longest name of any step, so that it
	// keeps its width while a watch redraws the table.
	widest := 0
	for _, sj := range sjs {
		widest = max(widest, longestStepName(sj))
	}
	table := newTable(s, nameHeader, "STATUS", "STEPS", "STEP", "TIME", "AGE")
	for _, sj := range sjs {
		step := fmt.Sprintf("%-*s", widest, sj.Status.Progress.CurrentStep)
		table.addRow(sj.Namespace,
			sj.Name, coloredPhase(s, sj), stepSymbols(s, &sj.Status), step, runDuration(&sj.Status, now), formatAge(sj.CreationTimestamp, now))
	}
	return table
}

func longestStepName(sj *v1alpha1.SequentialJob) int {
	longest := 0
	for i := range sj.Status.Steps {
		longest = max(longest, len(sj.Status.Steps[i].Name))
	}
	return longest
}

// SequencePhase returns the phase, or Pending before the operator has set it.
func SequencePhase(sj *v1alpha1.SequentialJob) v1alpha1.SequentialJobPhase {
	if sj.Status.Phase == "" {
		return v1alpha1.PhasePending
	}
	return sj.Status.Phase
}

func coloredPhase(s terminal.Style, sj *v1alpha1.SequentialJob) string {
	return s.Colorize(phaseColor(sj.Status.Phase), string(SequencePhase(sj)))
}

// stepSymbols returns a symbol for each step, with a bar before the steps of finally.
func stepSymbols(s terminal.Style, status *v1alpha1.SequentialJobStatus) string {
	steps := status.Steps
	if len(steps) > maxStepSymbols {
		return status.Progress.Display
	}
	var text strings.Builder
	for i := range steps {
		if steps[i].Finally && (i == 0 || !steps[i-1].Finally) {
			text.WriteString(s.Colorize(terminal.Dim, "|"))
		}
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
