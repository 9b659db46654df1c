package pool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// conditions sets all conditions of the pool.
func (d *decision) conditions() {
	d.availability()
	if d.problem == nil && d.in.Pool.DeletionTimestamp.IsZero() {
		d.rolloutConditions()
	}
	d.scalingConditions()
	d.drainConditions()
	d.degraded()
}

func (d *decision) set(kind string, status metav1.ConditionStatus, reason, format string, values ...any) {
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, values...),
		ObservedGeneration: d.in.Pool.Generation, LastTransitionTime: metav1.NewTime(d.now),
	})
}

// availability sets Available and Ready.
func (d *decision) availability() {
	ready, least := d.available(), d.least()
	status, reason := metav1.ConditionTrue, v1alpha1.ReasonMinimumAvailable
	if ready < least {
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonMinimumUnavailable
	}
	d.set(v1alpha1.ConditionAvailable, status, reason, "%d of %d workers are ready, at least %d must be", ready, d.desired, least)
	switch {
	case !d.in.Pool.DeletionTimestamp.IsZero():
		d.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting, "%s", d.deleting())
	case d.problem != nil:
		d.set(v1alpha1.ConditionReady, metav1.ConditionFalse, d.problem.Reason, "%s", d.problem.Message)
	case status == metav1.ConditionFalse:
		d.set(v1alpha1.ConditionReady, status, reason, "%d of %d workers are ready, at least %d must be", ready, d.desired, least)
	default:
		d.set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	}
}

// deleting tells what a pool that is being deleted waits for.
func (d *decision) deleting() string {
	left := d.status.Replicas
	switch {
	case left == 0:
		return "all workers are drained"
	case d.in.Figures == nil:
		return fmt.Sprintf("%d workers are drained, and the broker cannot be asked whether they have finished (%s); "+
			"annotate the WorkerPool with %s=true to delete it nevertheless", left, d.in.Unread, AnnotationAbandon)
	default:
		return fmt.Sprintf("%d workers are drained first", left)
	}
}

// rolloutConditions sets Progressing and RolloutPaused.
func (d *decision) rolloutConditions() {
	past := &d.updated.past
	reason, message := d.updated.failing()
	switch {
	case past.Failed != "":
		d.set(v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, v1alpha1.ReasonAnalysisFailed,
			"revision %s is given up: %s", d.updated.Name, past.Failed)
	case reason != "" && !d.complete:
		d.set(v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, reason, "revision %s: %s", d.updated.Name, message)
	case d.complete:
		d.set(v1alpha1.ConditionRolloutPaused, metav1.ConditionFalse, v1alpha1.ReasonRolledOut, "")
	default:
		d.set(v1alpha1.ConditionRolloutPaused, metav1.ConditionFalse, v1alpha1.ReasonRollingOut, "")
	}
	switch {
	case d.complete:
		d.set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRolledOut, "all workers are of revision %s", d.updated.Name)
	case past.Failed != "":
		d.set(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAnalysisFailed, "%s", past.Failed)
	case d.overdue():
		d.set(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonNoProgress,
			"revision %s has made no progress for %s", d.updated.Name, d.progressDeadline())
	default:
		d.set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRollingOut, "%s", d.progress())
	}
}

func (d *decision) progressDeadline() time.Duration {
	return orDuration(d.rollout.ProgressDeadline, defaultProgressDeadline).Duration.Duration
}

// overdue tells whether the rollout gets nowhere. Without anything to do it cannot.
func (d *decision) overdue() bool {
	last := d.updated.Created
	if d.updated.past.Progressed.After(last) {
		last = d.updated.past.Progressed
	}
	waits := !d.updated.past.Reached.IsZero()
	return d.desired > 0 && !waits && d.now.Sub(last) > d.progressDeadline()
}

func (d *decision) progress() string {
	text := fmt.Sprintf("revision %s: %d of %d workers have proven themselves", d.updated.Name, d.proven(), d.desired)
	if d.rollout.Strategy == v1alpha1.RolloutCanary && d.updated.past.Step < len(d.rollout.Steps) {
		text += fmt.Sprintf(", step %d of %d", d.updated.past.Step+1, len(d.rollout.Steps))
	}
	return text
}

// limiting are the reasons for which a pool has not as many workers as the figures ask for.
var limiting = []scaling.Reason{
	scaling.ReasonMaxReplicas, scaling.ReasonMinReplicas, scaling.ReasonBudget, scaling.ReasonRateLimit,
	scaling.ReasonMaxInFlight, scaling.ReasonSaturated,
}

// scalingConditions sets ScalingActive, ScalingLimited and MetricsFresh.
func (d *decision) scalingConditions() {
	if d.in.Figures != nil {
		d.set(v1alpha1.ConditionMetricsFresh, metav1.ConditionTrue, v1alpha1.ReasonFresh, "")
	} else {
		d.set(v1alpha1.ConditionMetricsFresh, metav1.ConditionFalse, v1alpha1.ReasonStale, "%s", d.in.Unread)
	}
	if d.in.Pool.Spec.Autoscaling == nil {
		d.set(v1alpha1.ConditionScalingActive, metav1.ConditionFalse, v1alpha1.ReasonManual, "spec.replicas says how many workers there are")
		d.limitedByHand()
		return
	}
	if d.decided == nil { // it was not decided, and nothing is known anew
		return
	}
	decision := d.status.LastDecision
	switch d.decided.Reason {
	case scaling.ReasonPaused, scaling.ReasonDryRun, scaling.ReasonNoFigures, scaling.ReasonFallback:
		d.set(v1alpha1.ConditionScalingActive, metav1.ConditionFalse, string(d.decided.Reason), "%s", decision.Message)
	default:
		d.set(v1alpha1.ConditionScalingActive, metav1.ConditionTrue, v1alpha1.ReasonAutoscaled, "")
	}
	if d.decided.Want != d.desired && slices.Contains(limiting, d.decided.Reason) {
		d.set(v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, string(d.decided.Reason), "%s", decision.Message)
		return
	}
	d.set(v1alpha1.ConditionScalingLimited, metav1.ConditionFalse, v1alpha1.ReasonWithinBounds, "")
}

func (d *decision) limitedByHand() {
	if wanted := d.in.Pool.Spec.Replicas; wanted != nil && d.desired < *wanted && d.in.Pool.DeletionTimestamp.IsZero() {
		d.set(v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, string(scaling.ReasonBudget),
			"%d workers are asked for, the Policies allow %d", *wanted, d.limit)
		return
	}
	d.set(v1alpha1.ConditionScalingLimited, metav1.ConditionFalse, v1alpha1.ReasonWithinBounds, "")
}

// drainConditions sets Draining and DrainTimedOut.
func (d *decision) drainConditions() {
	if number := d.status.Draining; number > 0 {
		d.set(v1alpha1.ConditionDraining, metav1.ConditionTrue, v1alpha1.ReasonDrainsRunning, "%d workers finish what they have", number)
	} else {
		d.set(v1alpha1.ConditionDraining, metav1.ConditionFalse, v1alpha1.ReasonDrained, "")
	}
	var late []string
	for _, r := range d.revisions {
		for _, w := range r.workers {
			if d.timedOut(w) {
				late = append(late, w.Name)
			}
		}
	}
	if len(late) == 0 {
		d.set(v1alpha1.ConditionDrainTimedOut, metav1.ConditionFalse, v1alpha1.ReasonDrained, "")
		return
	}
	d.set(v1alpha1.ConditionDrainTimedOut, metav1.ConditionTrue, v1alpha1.ReasonDrainTimeout,
		"%d workers have not finished in %s: %s", len(late), d.drain.Timeout.Duration.Duration, some(late))
}

// degraded sets Degraded.
func (d *decision) degraded() {
	for _, r := range d.revisions {
		if reason, message := r.failing(); reason != "" {
			d.set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, reason, "revision %s: %s", r.Name, message)
			return
		}
	}
	d.set(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonReady, "")
}

// some are the first of the names.
func some(names []string) string {
	const few = 3
	slices.Sort(names)
	if len(names) > few {
		return strings.Join(names[:few], ", ") + fmt.Sprintf(" and %d more", len(names)-few)
	}
	return strings.Join(names, ", ")
}
