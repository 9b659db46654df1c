package render

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// PoolExplanation renders why a pool has its number of workers: the last decision, whose message has the values of the scaling formula
// after its reason.
func PoolExplanation(s terminal.Style, wp *v1alpha1.WorkerPool, now time.Time) []string {
	status, d := &wp.Status, wp.Status.LastDecision
	title := fmt.Sprintf("%s   %d workers, %d ready", s.Bold(wp.Name), status.Desired, status.Ready)
	if status.Draining > 0 {
		title += fmt.Sprintf(", %d draining", status.Draining)
	}
	lines := []string{title}
	switch {
	case wp.Spec.Autoscaling == nil:
		lines = append(lines, fmt.Sprintf("  Manual: spec.replicas is %d, and autoscaling is off", ptr.Deref(wp.Spec.Replicas, 0)))
	case d == nil:
		lines = append(lines, "  no scaling decision yet")
	default:
		terms := strings.Split(terminal.Sanitize(d.Message), "; ")
		why := "  " + s.Colorize(terminal.Cyan, terminal.Sanitize(d.Reason)) + ": " + terms[0]
		if d.Time != nil {
			why += fmt.Sprintf(" (%s ago)", elapsedSince(d.Time, now))
		}
		lines = append(lines, why)
		for _, term := range terms[1:] {
			lines = append(lines, "    "+term)
		}
		settings := scaling.NewSettings(wp.Spec.Autoscaling, wp.Spec.Concurrency)
		lines = append(lines, fmt.Sprintf("  %d recommended, %d desired.", d.Recommendation, status.Desired),
			fmt.Sprintf("  Limits: %d to %d workers, p95 wait %s.", settings.MinReplicas, cmp.Or(replicaLimit(wp), settings.MaxReplicas), FormatRounded(settings.WaitP95)))
	}
	return append(lines, problemLines(s, PoolProblems(wp))...)
}
