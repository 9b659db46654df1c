package render

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// SequenceDetail are lines about one SequentialJob: how it stands, what holds it up, and each step.
func SequenceDetail(s terminal.Style, sj *v1alpha1.SequentialJob, now time.Time) []string {
	lines := []string{sequenceHeader(s, sj, now)}
	for _, obstacle := range sequenceProblems(sj) {
		lines = append(lines, "  "+s.Colorize(terminal.Yellow, obstacle))
	}
	var table [][]string
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		name := step.Name
		if step.Finally {
			name += s.Colorize(terminal.Dim, " (finally)")
		}
		_, colour := stepSymbol(step)
		table = append(table, []string{
			"  " + coloredSymbol(s, step) + " " + name, s.Colorize(colour, string(step.Phase)), stepDuration(step, now), stepRemark(sj, step),
		})
	}
	return append(lines, terminal.AlignColumns(table)...)
}

func sequenceHeader(s terminal.Style, sj *v1alpha1.SequentialJob, now time.Time) string {
	words := []string{s.Bold(sj.Name), coloredPhase(s, sj)}
	if sj.Status.Run > 1 {
		words = append(words, fmt.Sprintf("run %d", sj.Status.Run))
	}
	if display := sj.Status.Progress.Display; display != "" {
		words = append(words, display)
	}
	if time := runDuration(&sj.Status, now); time != "" {
		words = append(words, time)
	}
	return strings.Join(words, "   ")
}

// sequenceProblems are why a sequence does not do what its spec says, as its conditions tell.
func sequenceProblems(sj *v1alpha1.SequentialJob) []string {
	var told []string
	tell := func(condition string, bad metav1.ConditionStatus) {
		if c := meta.FindStatusCondition(sj.Status.Conditions, condition); c != nil && c.Status == bad {
			told = append(told, fmt.Sprintf("%s: %s", c.Reason, terminal.Sanitize(c.Message)))
		}
	}
	tell(v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse)
	tell(v1alpha1.ConditionResourcesUnavailable, metav1.ConditionTrue)
	tell(v1alpha1.ConditionNameConflict, metav1.ConditionTrue)
	return told
}

func stepDuration(step *v1alpha1.StepStatus, now time.Time) string {
	switch {
	case step.StartTime == nil:
		return ""
	case step.FinishTime != nil:
		return formatElapsed(step.StartTime.Time, step.FinishTime.Time)
	default:
		return formatElapsed(step.StartTime.Time, now)
	}
}

// stepRemark is what else there is to say of a step: the run and the attempt it is of if they
// are not the usual ones, why it failed, and its output.
func stepRemark(sj *v1alpha1.SequentialJob, step *v1alpha1.StepStatus) string {
	var parts []string
	if isFromEarlierRun(sj, step) {
		parts = append(parts, fmt.Sprintf("of run %d", step.Run))
	}
	if step.Attempt > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", step.Attempt))
	}
	if step.Tolerated {
		parts = append(parts, "tolerated")
	}
	why := slices.DeleteFunc([]string{step.Reason, terminal.Sanitize(step.Message)}, func(s string) bool { return s == "" })
	if len(why) > 0 {
		parts = append(parts, strings.Join(why, ": "))
	}
	if step.Output != "" {
		parts = append(parts, "output: "+terminal.Sanitize(step.Output))
	}
	return strings.Join(parts, ", ")
}
