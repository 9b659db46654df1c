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
	rows := [][]string{{nameColumn, "STATUS", "READY", "BUSY", "DRAINING", "BACKLOG", "P95/SLO", "REVISION", "DECISION", "AGE"}}
	for _, wp := range pools {
		status := &wp.Status
		rows = append(rows, []string{
			wp.Name, state(s, wp, status.Conditions), fmt.Sprintf("%d/%d", status.Ready, status.Desired), figure(status.Busy),
			strconv.Itoa(int(status.Draining)), figure(status.Backlog), objective(s, status.SLO), revisions(status), decision(wp),
			ageOf(wp.CreationTimestamp, now),
		})
	}
	return rows
}

// objective is how long messages waited, of how long they may.
func objective(s terminal.Style, slo *v1alpha1.ObjectiveStatus) string {
	if slo == nil {
		return unknown
	}
	colour := map[metav1.ConditionStatus]terminal.Colour{
		metav1.ConditionTrue: terminal.Green, metav1.ConditionFalse: terminal.Red,
	}[slo.Met]
	return s.Paint(colour, span(slo.MeasuredP95)+"/"+span(slo.WaitP95))
}

// revisions are the one of all workers and, in a rollout, the one that they come to have.
func revisions(status *v1alpha1.WorkerPoolStatus) string {
	current, updated := revision(status, status.CurrentRevision), revision(status, status.UpdatedRevision)
	if current == updated || updated == "" {
		return cmp.Or(current, unknown)
	}
	return cmp.Or(current, unknown) + "→" + updated
}

// revision by what people know it by.
func revision(status *v1alpha1.WorkerPoolStatus, name string) string {
	for i := range status.Revisions {
		if r := &status.Revisions[i]; r.Name == name {
			return cmp.Or(terminal.Clean(r.Version), r.Hash, name)
		}
	}
	return name
}

// decision is why there are as many workers as there are, in a word.
func decision(wp *v1alpha1.WorkerPool) string {
	switch {
	case wp.Spec.Autoscaling == nil:
		return v1alpha1.ReasonManual
	case wp.Status.LastDecision == nil:
		return unknown
	default:
		return cmp.Or(terminal.Clean(wp.Status.LastDecision.Reason), unknown)
	}
}

// room is how many workers a pool may have.
func room(wp *v1alpha1.WorkerPool) int32 {
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

// Load is a WorkerPool with what its backlog was lately, the oldest first.
type Load struct {
	Pool     *v1alpha1.WorkerPool
	Backlogs []int64
}

// Loads show backlogs against workers.
func Loads(s terminal.Style, loads []Load) []string { return table(s, nil, loadRows(s, loads)) }

// LoadsOfNamespaces are Loads that say which namespace each pool is of.
func LoadsOfNamespaces(s terminal.Style, loads []Load) []string {
	namespaces := make([]string, len(loads))
	for i := range loads {
		namespaces[i] = loads[i].Pool.Namespace
	}
	return table(s, namespaces, loadRows(s, loads))
}

func loadRows(s terminal.Style, loads []Load) [][]string {
	rows := [][]string{{nameColumn, "BACKLOG", "", "IN FLIGHT", "P95/SLO", "WORKERS", "", "BUSY", "DRAINING", "DECISION"}}
	for _, load := range loads {
		wp, status := load.Pool, &load.Pool.Status
		rows = append(rows, []string{
			wp.Name, figure(status.Backlog), s.Paint(backlogColour(status), Spark(load.Backlogs)), figure(status.InFlight), objective(s, status.SLO),
			fmt.Sprintf("%d/%d", status.Ready, status.Desired), s.Paint(terminal.Cyan, Bar(status.Ready, status.Desired, room(wp))),
			figure(status.Busy), strconv.Itoa(int(status.Draining)), decision(wp),
		})
	}
	return rows
}

func backlogColour(status *v1alpha1.WorkerPoolStatus) terminal.Colour {
	if status.SLO != nil && status.SLO.Met == metav1.ConditionFalse {
		return terminal.Red
	}
	return terminal.Green
}

// PoolChanges are lines about what is different from before, for output that is not a
// terminal. Before may be nil.
func PoolChanges(before, after *v1alpha1.WorkerPool) []string {
	var lines []string
	if text := summary(after); before == nil || summary(before) != text {
		lines = append(lines, text)
	}
	for _, trouble := range Troubles(after) {
		if before == nil || !contains(Troubles(before), trouble) {
			lines = append(lines, trouble.String())
		}
	}
	return lines
}

// summary of a pool in one line.
func summary(wp *v1alpha1.WorkerPool) string {
	status := &wp.Status
	text := fmt.Sprintf("backlog %s, in flight %s, %d/%d workers ready, %s busy",
		figure(status.Backlog), figure(status.InFlight), status.Ready, status.Desired, figure(status.Busy))
	if status.Draining > 0 {
		text += fmt.Sprintf(", %d draining", status.Draining)
	}
	if wp.Spec.Autoscaling != nil {
		text += ": " + decision(wp)
	}
	return text
}

// Trouble is a condition that is not as it should be.
type Trouble struct{ Reason, Message string }

func (t Trouble) String() string { return t.Reason + ": " + t.Message }

// contains compares reasons alone: messages have figures in them that change all the time.
func contains(troubles []Trouble, one Trouble) bool {
	for _, t := range troubles {
		if t.Reason == one.Reason {
			return true
		}
	}
	return false
}

// asAsked are reasons of conditions that are just what the spec asks for.
var asAsked = map[string]bool{v1alpha1.ReasonManual: true, string(scaling.ReasonMinReplicas): true}

// Troubles are why a pool does not do what its spec says, as its conditions tell.
func Troubles(wp *v1alpha1.WorkerPool) []Trouble {
	var told []Trouble
	tell := func(condition string, bad metav1.ConditionStatus) {
		c := meta.FindStatusCondition(wp.Status.Conditions, condition)
		if c == nil || c.Status != bad || asAsked[c.Reason] {
			return
		}
		one := Trouble{terminal.Clean(c.Reason), terminal.Clean(c.Message)}
		if !contains(told, one) {
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
