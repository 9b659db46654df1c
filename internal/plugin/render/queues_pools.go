package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// PoolTable renders WorkerPools with their workers and backlog.
func PoolTable(s terminal.Style, pools []*v1alpha1.WorkerPool, now time.Time) *Table {
	table := newTable(s, nameHeader, "STATUS", "WORKERS", "BUSY", "DRAINING", "BACKLOG", "P95/SLO", "REVISION", "DECISION", "AGE")
	for _, wp := range pools {
		status := &wp.Status
		revision, updated := revisionLabel(wp, status.CurrentRevision), revisionLabel(wp, status.UpdatedRevision)
		isRollingOut := updated != "" && updated != revision
		revision = cmp.Or(revision, unknownValue)
		if isRollingOut {
			revision += "→" + updated
		}
		table.addRow(wp.Namespace,
			wp.Name, statusCell(s, wp, status.Conditions), fmt.Sprintf("%d/%d", status.Ready, status.Desired), formatCount(status.Busy),
			strconv.Itoa(int(status.Draining)), formatCount(status.Backlog), waitObjective(s, wp), revision, decisionReason(wp),
			formatAge(wp.CreationTimestamp, now))
	}
	return table
}

func waitObjective(s terminal.Style, wp *v1alpha1.WorkerPool) string {
	if wp.Spec.Autoscaling == nil || wp.Status.ObjectiveMet == "" {
		return unknownValue
	}
	color := map[metav1.ConditionStatus]terminal.Color{
		metav1.ConditionTrue: terminal.Green, metav1.ConditionFalse: terminal.Red,
	}[wp.Status.ObjectiveMet]
	return s.Colorize(color, formatDuration(wp.Status.WaitP95)+"/"+formatDuration(&wp.Spec.Autoscaling.WaitP95.Duration))
}

// revisionLabel is the version of a revision, or else its name without that of the pool.
func revisionLabel(wp *v1alpha1.WorkerPool, name string) string {
	for i := range wp.Status.Revisions {
		if r := &wp.Status.Revisions[i]; r.Name == name && r.Version != "" {
			return terminal.Sanitize(r.Version)
		}
	}
	return strings.TrimPrefix(name, wp.Name+"-")
}

// decisionReason is the reason for the current number of workers.
func decisionReason(wp *v1alpha1.WorkerPool) string {
	switch {
	case wp.Spec.Autoscaling == nil:
		return v1alpha1.ReasonManual
	case wp.Status.LastDecision == nil:
		return unknownValue
	default:
		return cmp.Or(terminal.Sanitize(wp.Status.LastDecision.Reason), unknownValue)
	}
}

func replicaLimit(wp *v1alpha1.WorkerPool) int32 {
	limit := wp.Status.Desired
	switch {
	case wp.Spec.Autoscaling != nil:
		limit = wp.Spec.Autoscaling.MaxReplicas
	case wp.Spec.Replicas != nil:
		limit = *wp.Spec.Replicas
	}
	if e := wp.Status.Effective; e != nil && e.MaxReplicas != nil {
		limit = min(limit, *e.MaxReplicas)
	}
	return limit
}

// PoolLoad is a WorkerPool with its recent backlogs, the oldest first.
type PoolLoad struct {
	Pool     *v1alpha1.WorkerPool
	Backlogs []int64
}

// PoolLoadTable renders the backlog and workers of WorkerPools.
func PoolLoadTable(s terminal.Style, loads []*PoolLoad) *Table {
	table := newTable(s, nameHeader, "BACKLOG", "", "IN FLIGHT", "P95/SLO", "WORKERS", "", "BUSY", "DRAINING", "DECISION")
	for _, load := range loads {
		wp, status, backlogColor := load.Pool, &load.Pool.Status, terminal.Green
		if status.ObjectiveMet == metav1.ConditionFalse {
			backlogColor = terminal.Red
		}
		table.addRow(wp.Namespace,
			wp.Name, formatCount(status.Backlog), s.Colorize(backlogColor, Sparkline(load.Backlogs)), formatCount(status.InFlight),
			waitObjective(s, wp), fmt.Sprintf("%d/%d", status.Ready, status.Desired),
			s.Colorize(terminal.Cyan, WorkerBar(status.Ready, status.Desired, replicaLimit(wp))),
			formatCount(status.Busy), strconv.Itoa(int(status.Draining)), decisionReason(wp))
	}
	return table
}

// PoolChanges returns a line for each difference between before and after, for output that is not a terminal. A nil before is an
// object without a status.
func PoolChanges(before, after *v1alpha1.WorkerPool) []Change {
	var changes []Change
	if summary := poolSummary(after); before == nil || poolSummary(before) != summary {
		changes = append(changes, Change{Text: summary})
	}
	for _, problem := range PoolProblems(after) {
		if before == nil || !containsReason(PoolProblems(before), problem) {
			changes = append(changes, Change{problem.Since, problem.String()})
		}
	}
	return changes
}

func poolSummary(wp *v1alpha1.WorkerPool) string {
	status := &wp.Status
	parts := []string{fmt.Sprintf("backlog %s, in flight %s, %d/%d workers ready, %s busy",
		formatCount(status.Backlog), formatCount(status.InFlight), status.Ready, status.Desired, formatCount(status.Busy))}
	for _, part := range []struct {
		number int64
		what   string
	}{{int64(status.Draining), "draining"}, {ptr.Deref(status.Snoozed, 0), "snoozed"}, {int64(ptr.Deref(status.OpenBreakers, 0)), "with an open breaker"}} {
		if part.number > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.number, part.what))
		}
	}
	text := strings.Join(parts, ", ")
	if wp.Spec.Autoscaling != nil {
		text += ": " + decisionReason(wp)
	}
	return text
}

var poolProblemConditions = []problemCondition{
	{v1alpha1.ConditionReady, metav1.ConditionFalse},
	{v1alpha1.ConditionScalingActive, metav1.ConditionFalse},
	{v1alpha1.ConditionScalingLimited, metav1.ConditionTrue},
	{v1alpha1.ConditionProgressing, metav1.ConditionFalse},
	{v1alpha1.ConditionDegraded, metav1.ConditionTrue},
}

// expectedReasons are reasons of conditions that only repeat the spec.
var expectedReasons = map[string]bool{v1alpha1.ReasonManual: true, string(scaling.ReasonMinReplicas): true}

// PoolProblems returns the problems that keep a pool from fulfilling its spec.
func PoolProblems(wp *v1alpha1.WorkerPool) []Problem {
	return findProblems(wp.Status.Conditions, poolProblemConditions, func(c *metav1.Condition) bool { return expectedReasons[c.Reason] })
}

// sparklineLevels are the characters of a sparkline, the lowest first.
var sparklineLevels = []rune("▁▂▃▄▅▆▇█")

// Sparkline returns one character per value, scaled to the largest value. Only zero has the lowest level: a small value never looks
// like zero.
func Sparkline(values []int64) string {
	largest := slices.Max(append(slices.Clone(values), 1))
	var line strings.Builder
	for _, value := range values {
		level := 0
		if value > 0 {
			level = max(1, int(float64(value)/float64(largest)*float64(len(sparklineLevels)-1)))
		}
		line.WriteRune(sparklineLevels[level])
	}
	return line.String()
}

// barColumns is the width of a worker bar.
const barColumns = 12

// WorkerBar shows ready and desired workers on a scale from zero to limit.
func WorkerBar(ready, desired, limit int32) string {
	limit = max(limit, ready, desired, 1)
	columns := func(number int32) int {
		if number <= 0 {
			return 0
		}
		return max(1, int(int64(number)*barColumns/int64(limit)))
	}
	full := columns(ready)
	starting := max(0, columns(desired)-full)
	if starting == 0 && desired > ready && full < barColumns {
		starting = 1
	}
	return strings.Repeat("█", full) + strings.Repeat("▒", starting) + strings.Repeat("·", barColumns-full-starting)
}

// QueueTable renders Queues with their message counts.
func QueueTable(s terminal.Style, queues []*v1alpha1.Queue, now time.Time) *Table {
	table := newTable(s, nameHeader, "STATUS", "BACKLOG", "IN FLIGHT", "DELAYED", "DEAD", "OLDEST", "P95 WAIT", "ENGINE", "AGE")
	for _, q := range queues {
		status := &q.Status
		dead := formatCount(status.Dead)
		if status.Dead != nil && *status.Dead > 0 {
			dead = s.Colorize(terminal.Yellow, dead)
		}
		table.addRow(q.Namespace,
			q.Name, statusCell(s, q, status.Conditions), formatCount(status.Backlog), formatCount(status.InFlight), formatCount(status.Delayed),
			dead, formatAgeIfKnown(status.OldestTime, now), formatDuration(status.WaitP95),
			cmp.Or(string(status.Engine), unknownValue), formatAge(q.CreationTimestamp, now))
	}
	return table
}
