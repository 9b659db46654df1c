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

// Steps are lines about one SequentialJob: how it stands, what holds it up, and each step.
func Steps(s terminal.Style, sj *v1alpha1.SequentialJob, now time.Time) []string {
	lines := []string{head(s, sj, now)}
	for _, obstacle := range obstacles(sj) {
		lines = append(lines, "  "+s.Paint(terminal.Yellow, obstacle))
	}
	var table [][]string
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		name := step.Name
		if step.Finally {
			name += s.Paint(terminal.Dim, " (finally)")
		}
		_, colour := signOf(step)
		table = append(table, []string{
			"  " + sign(s, step) + " " + name, s.Paint(colour, string(step.Phase)), stepTaken(step, now), remark(sj, step),
		})
	}
	return append(lines, terminal.Columns(table)...)
}

func head(s terminal.Style, sj *v1alpha1.SequentialJob, now time.Time) string {
	words := []string{s.Bold(sj.Name), phase(s, sj)}
	if sj.Status.Run > 1 {
		words = append(words, fmt.Sprintf("run %d", sj.Status.Run))
	}
	if display := sj.Status.Progress.Display; display != "" {
		words = append(words, display)
	}
	if time := taken(&sj.Status, now); time != "" {
		words = append(words, time)
	}
	return strings.Join(words, "   ")
}

// obstacles are why a sequence does not do what its spec says, as its conditions tell.
func obstacles(sj *v1alpha1.SequentialJob) []string {
	var told []string
	tell := func(condition string, bad metav1.ConditionStatus) {
		if c := meta.FindStatusCondition(sj.Status.Conditions, condition); c != nil && c.Status == bad {
			told = append(told, fmt.Sprintf("%s: %s", c.Reason, terminal.Clean(c.Message)))
		}
	}
	tell(v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse)
	tell(v1alpha1.ConditionResourcesUnavailable, metav1.ConditionTrue)
	tell(v1alpha1.ConditionNameConflict, metav1.ConditionTrue)
	return told
}

func stepTaken(step *v1alpha1.StepStatus, now time.Time) string {
	switch {
	case step.StartTime == nil:
		return ""
	case step.FinishTime != nil:
		return elapsed(step.StartTime.Time, step.FinishTime.Time)
	default:
		return elapsed(step.StartTime.Time, now)
	}
}

// remark is what else there is to say of a step: the run and the attempt it is of if they
// are not the usual ones, why it failed, and its output.
func remark(sj *v1alpha1.SequentialJob, step *v1alpha1.StepStatus) string {
	var parts []string
	if keptFrom(sj, step) {
		parts = append(parts, fmt.Sprintf("of run %d", step.Run))
	}
	if step.Attempt > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", step.Attempt))
	}
	if step.Tolerated {
		parts = append(parts, "tolerated")
	}
	why := slices.DeleteFunc([]string{step.Reason, terminal.Clean(step.Message)}, func(s string) bool { return s == "" })
	if len(why) > 0 {
		parts = append(parts, strings.Join(why, ": "))
	}
	if step.Output != "" {
		parts = append(parts, "output: "+terminal.Clean(step.Output))
	}
	return strings.Join(parts, ", ")
}
