package render

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// Pools are a header and a line for each WorkerPool.
func Pools(s terminal.Style, pools []*v1alpha1.WorkerPool, now time.Time) []string {
	return table(s, nil, poolRows(s, pools, now))
}

// PoolsOfNamespaces are Pools that say which namespace each is of.
func PoolsOfNamespaces(s terminal.Style, pools []*v1alpha1.WorkerPool, now time.Time) []string {
	return table(s, namespacesOf(pools), poolRows(s, pools, now))
}

func poolRows(s terminal.Style, pools []*v1alpha1.WorkerPool, now time.Time) [][]string {
	rows := [][]string{{nameHeader, "STATUS", "READY", "BUSY", "DRAINING", "BACKLOG", "P95/SLO", "REVISION", "DECISION", "AGE"}}
	for _, wp := range pools {
		status := &wp.Status
		rows = append(rows, []string{
			wp.Name, statusCell(s, wp, status.Conditions), fmt.Sprintf("%d/%d", status.Ready, status.Desired), formatCount(status.Busy),
			strconv.Itoa(int(status.Draining)), formatCount(status.Backlog), waitObjective(s, status.SLO), revisionCell(status), decisionReason(wp),
			formatAge(wp.CreationTimestamp, now),
		})
	}
	return rows
}

// waitObjective is how long messages waited, of how long they may.
func waitObjective(s terminal.Style, slo *v1alpha1.ObjectiveStatus) string {
	if slo == nil {
		return unknownValue
	}
	colour := map[metav1.ConditionStatus]terminal.Color{
		metav1.ConditionTrue: terminal.Green, metav1.ConditionFalse: terminal.Red,
	}[slo.Met]
	return s.Colorize(colour, formatDuration(slo.MeasuredP95)+"/"+formatDuration(slo.WaitP95))
}

// revisionCell are the one of all workers and, in a rollout, the one that they come to have.
func revisionCell(status *v1alpha1.WorkerPoolStatus) string {
	current, updated := revisionLabel(status, status.CurrentRevision), revisionLabel(status, status.UpdatedRevision)
	if current == updated || updated == "" {
		return cmp.Or(current, unknownValue)
	}
	return cmp.Or(current, unknownValue) + "→" + updated
}

// revisionLabel by what people know it by.
func revisionLabel(status *v1alpha1.WorkerPoolStatus, name string) string {
	for i := range status.Revisions {
		if r := &status.Revisions[i]; r.Name == name {
			return cmp.Or(terminal.Sanitize(r.Version), r.Hash, name)
		}
	}
	return name
}

// decisionReason is why there are as many workers as there are, in a word.
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

// replicaLimit is how many workers a pool may have.
func replicaLimit(wp *v1alpha1.WorkerPool) int32 {
	most := wp.Status.Desired
	switch {
	case wp.Spec.Autoscaling != nil:
		most = wp.Spec.Autoscaling.MaxReplicas
	case wp.Spec.Replicas != nil:
		most = *wp.Spec.Replicas
	}
	if e := wp.Status.Effective; e != nil && e.MaxReplicas != nil {
		most = min(most, *e.MaxReplicas)
	}
	return most
}

// PoolLoad is a WorkerPool with what its backlog was lately, the oldest first.
type PoolLoad struct {
	Pool     *v1alpha1.WorkerPool
	Backlogs []int64
}

// Loads show backlogs against workers.
func Loads(s terminal.Style, loads []PoolLoad) []string { return table(s, nil, loadRows(s, loads)) }

// LoadsOfNamespaces are Loads that say which namespace each pool is of.
func LoadsOfNamespaces(s terminal.Style, loads []PoolLoad) []string {
	namespaces := make([]string, len(loads))
	for i := range loads {
		namespaces[i] = loads[i].Pool.Namespace
	}
	return table(s, namespaces, loadRows(s, loads))
}

func loadRows(s terminal.Style, loads []PoolLoad) [][]string {
	rows := [][]string{{nameHeader, "BACKLOG", "", "IN FLIGHT", "P95/SLO", "WORKERS", "", "BUSY", "DRAINING", "DECISION"}}
	for _, load := range loads {
		wp, status := load.Pool, &load.Pool.Status
		rows = append(rows, []string{
			wp.Name, formatCount(status.Backlog), s.Colorize(backlogColor(status), Sparkline(load.Backlogs)), formatCount(status.InFlight), waitObjective(s, status.SLO),
			fmt.Sprintf("%d/%d", status.Ready, status.Desired), s.Colorize(terminal.Cyan, WorkerBar(status.Ready, status.Desired, replicaLimit(wp))),
			formatCount(status.Busy), strconv.Itoa(int(status.Draining)), decisionReason(wp),
		})
	}
	return rows
}

func backlogColor(status *v1alpha1.WorkerPoolStatus) terminal.Color {
	if status.SLO != nil && status.SLO.Met == metav1.ConditionFalse {
		return terminal.Red
	}
	return terminal.Green
}

// PoolChanges are lines about what is different from before, for output that is not a
// terminal. Before may be nil.
func PoolChanges(before, after *v1alpha1.WorkerPool) []string {
	var lines []string
	if text := poolSummary(after); before == nil || poolSummary(before) != text {
		lines = append(lines, text)
	}
	for _, trouble := range PoolProblems(after) {
		if before == nil || !containsReason(PoolProblems(before), trouble) {
			lines = append(lines, trouble.String())
		}
	}
	return lines
}

// poolSummary of a pool in one line.
func poolSummary(wp *v1alpha1.WorkerPool) string {
	status := &wp.Status
	text := fmt.Sprintf("backlog %s, in flight %s, %d/%d workers ready, %s busy",
		formatCount(status.Backlog), formatCount(status.InFlight), status.Ready, status.Desired, formatCount(status.Busy))
	if status.Draining > 0 {
		text += fmt.Sprintf(", %d draining", status.Draining)
	}
	if wp.Spec.Autoscaling != nil {
		text += ": " + decisionReason(wp)
	}
	return text
}

// Problem is a condition that is not as it should be.
type Problem struct{ Reason, Message string }

func (t Problem) String() string { return t.Reason + ": " + t.Message }

// containsReason compares reasons alone: messages have figures in them that change all the time.
func containsReason(troubles []Problem, one Problem) bool {
	for _, t := range troubles {
		if t.Reason == one.Reason {
			return true
		}
	}
	return false
}

// expectedReasons are reasons of conditions that are just what the spec asks for.
var expectedReasons = map[string]bool{v1alpha1.ReasonManual: true, string(scaling.ReasonMinReplicas): true}

// PoolProblems are why a pool does not do what its spec says, as its conditions tell.
func PoolProblems(wp *v1alpha1.WorkerPool) []Problem {
	var told []Problem
	tell := func(condition string, bad metav1.ConditionStatus) {
		c := meta.FindStatusCondition(wp.Status.Conditions, condition)
		if c == nil || c.Status != bad || expectedReasons[c.Reason] {
			return
		}
		one := Problem{terminal.Sanitize(c.Reason), terminal.Sanitize(c.Message)}
		if !containsReason(told, one) {
			told = append(told, one)
		}
	}
	tell(v1alpha1.ConditionReady, metav1.ConditionFalse)
	tell(v1alpha1.ConditionMetricsFresh, metav1.ConditionFalse)
	tell(v1alpha1.ConditionScalingActive, metav1.ConditionFalse)
	tell(v1alpha1.ConditionScalingLimited, metav1.ConditionTrue)
	tell(v1alpha1.ConditionDrainTimedOut, metav1.ConditionTrue)
	tell(v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue)
	tell(v1alpha1.ConditionProgressing, metav1.ConditionFalse)
	tell(v1alpha1.ConditionDegraded, metav1.ConditionTrue)
	return told
}
