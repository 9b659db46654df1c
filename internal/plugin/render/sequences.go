package render

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// maxStepSymbols is how many steps have a sign each; of more the counts are told.
const maxStepSymbols = 24

// Rows are a header and a line for each SequentialJob.
func Rows(s terminal.Style, sjs []*v1alpha1.SequentialJob, now time.Time) []string {
	return rows(s, sjs, now, false)
}

// RowsOfNamespaces are Rows that say which namespace each SequentialJob is of.
func RowsOfNamespaces(s terminal.Style, sjs []*v1alpha1.SequentialJob, now time.Time) []string {
	return rows(s, sjs, now, true)
}

func rows(s terminal.Style, sjs []*v1alpha1.SequentialJob, now time.Time, namespaces bool) []string {
	// The step's column has room for every step, so that it stays as wide as it is.
	widest := 0
	for _, sj := range sjs {
		widest = max(widest, longestStepName(sj))
	}
	table := [][]string{{nameHeader, "STATUS", "STEPS", "STEP", "TIME", "AGE"}}
	for _, sj := range sjs {
		step := fmt.Sprintf("%-*s", widest, sj.Status.Progress.CurrentStep)
		table = append(table, []string{
			sj.Name, coloredPhase(s, sj), stepSymbols(s, &sj.Status), step, runDuration(&sj.Status, now), age(sj, now),
		})
	}
	if namespaces {
		table[0] = append([]string{"NAMESPACE"}, table[0]...)
		for i, sj := range sjs {
			table[i+1] = append([]string{sj.Namespace}, table[i+1]...)
		}
	}
	lines := terminal.AlignColumns(table)
	lines[0] = s.Colorize(terminal.Dim, lines[0])
	return lines
}

func longestStepName(sj *v1alpha1.SequentialJob) int {
	longest := 0
	for i := range sj.Status.Steps {
		longest = max(longest, len(sj.Status.Steps[i].Name))
	}
	return longest
}

// SequencePhase is that of the SequentialJob, also before the operator has seen it.
func SequencePhase(sj *v1alpha1.SequentialJob) v1alpha1.SequentialJobPhase {
	if sj.Status.Phase == "" {
		return v1alpha1.PhasePending
	}
	return sj.Status.Phase
}

func coloredPhase(s terminal.Style, sj *v1alpha1.SequentialJob) string {
	return s.Colorize(phaseColor(sj.Status.Phase), string(SequencePhase(sj)))
}

// stepSymbols is a sign for each step. Those of finally stand behind a bar.
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

// runDuration is the time from the run's start to its end or now.
func runDuration(status *v1alpha1.SequentialJobStatus, now time.Time) string {
	if status.StartTime == nil {
		return ""
	}
	if status.CompletionTime != nil {
		now = status.CompletionTime.Time
	}
	return formatElapsed(status.StartTime.Time, now)
}

func formatElapsed(start, end time.Time) string {
	return max(0, end.Sub(start)).Round(time.Second).String()
}

func age(sj *v1alpha1.SequentialJob, now time.Time) string {
	if sj.CreationTimestamp.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(sj.CreationTimestamp.Time)))
}
