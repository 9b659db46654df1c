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

// setConditions sets all conditions of the pool.
func (d *evaluation) setConditions() {
	d.setAvailability()
	if d.problem == nil && d.observation.Pool.DeletionTimestamp.IsZero() {
		d.rolloutConditions()
	}
	d.scalingConditions()
	d.drainConditions()
	d.setDegraded()
}

func (d *evaluation) setCondition(kind string, status metav1.ConditionStatus, reason, format string, values ...any) {
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, values...),
		ObservedGeneration: d.observation.Pool.Generation, LastTransitionTime: metav1.NewTime(d.now),
	})
}

// setAvailability sets Available and Ready.
func (d *evaluation) setAvailability() {
	ready, least := d.availableWorkers(), d.minimumAvailable()
	status, reason := metav1.ConditionTrue, v1alpha1.ReasonMinimumAvailable
	if ready < least {
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonMinimumUnavailable
	}
	d.setCondition(v1alpha1.ConditionAvailable, status, reason, "%d of %d workers are ready, at least %d must be", ready, d.desired, least)
	switch {
	case !d.observation.Pool.DeletionTimestamp.IsZero():
		d.setCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting, "%s", d.deletionMessage())
	case d.problem != nil:
		d.setCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, d.problem.Reason, "%s", d.problem.Message)
	case status == metav1.ConditionFalse:
		d.setCondition(v1alpha1.ConditionReady, status, reason, "%d of %d workers are ready, at least %d must be", ready, d.desired, least)
	default:
		d.setCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	}
}

// deletionMessage tells what a pool that is being deleted waits for.
func (d *evaluation) deletionMessage() string {
	left := d.status.Replicas
	switch {
	case left == 0:
		return "all workers are drained"
	case d.observation.Stats == nil:
		return fmt.Sprintf("%d workers are drained, and the broker cannot be asked whether they have finished (%s); "+
			"annotate the WorkerPool with %s=true to delete it nevertheless", left, d.observation.StatsError, AnnotationAbandon)
	default:
		return fmt.Sprintf("%d workers are drained first", left)
	}
}

// rolloutConditions sets Progressing and RolloutPaused.
func (d *evaluation) rolloutConditions() {
	past := &d.updated.newHistory
	reason, message := d.updated.startFailure()
	switch {
	case past.FailureMessage != "":
		d.setCondition(v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, v1alpha1.ReasonAnalysisFailed,
			"revision %s is given up: %s", d.updated.Name, past.FailureMessage)
	case reason != "" && !d.rolloutComplete:
		d.setCondition(v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, reason, "revision %s: %s", d.updated.Name, message)
	case d.rolloutComplete:
		d.setCondition(v1alpha1.ConditionRolloutPaused, metav1.ConditionFalse, v1alpha1.ReasonRolledOut, "")
	default:
		d.setCondition(v1alpha1.ConditionRolloutPaused, metav1.ConditionFalse, v1alpha1.ReasonRollingOut, "")
	}
	switch {
	case d.rolloutComplete:
		d.setCondition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRolledOut, "all workers are of revision %s", d.updated.Name)
	case past.FailureMessage != "":
		d.setCondition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAnalysisFailed, "%s", past.FailureMessage)
	case d.isProgressOverdue():
		d.setCondition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonNoProgress,
			"revision %s has made no progress for %s", d.updated.Name, d.progressDeadline())
	default:
		d.setCondition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRollingOut, "%s", d.progressMessage())
	}
}

func (d *evaluation) progressDeadline() time.Duration {
	return durationOr(d.rollout.ProgressDeadline, defaultProgressDeadline).Duration.Duration
}

// isProgressOverdue tells whether the rollout gets nowhere. Without anything to do it cannot.
func (d *evaluation) isProgressOverdue() bool {
	last := d.updated.Created
	if d.updated.newHistory.LastProgress.After(last) {
		last = d.updated.newHistory.LastProgress
	}
	waits := !d.updated.newHistory.StepReached.IsZero()
	return d.desired > 0 && !waits && d.now.Sub(last) > d.progressDeadline()
}

func (d *evaluation) progressMessage() string {
	text := fmt.Sprintf("revision %s: %d of %d workers have proven themselves", d.updated.Name, d.provenWorkers(), d.desired)
	if d.rollout.Strategy == v1alpha1.RolloutCanary && d.updated.newHistory.CanaryStep < len(d.rollout.Steps) {
		text += fmt.Sprintf(", step %d of %d", d.updated.newHistory.CanaryStep+1, len(d.rollout.Steps))
	}
	return text
}

// limitingReasons are the reasons for which a pool has not as many workers as the figures ask for.
var limitingReasons = []scaling.Reason{
	scaling.ReasonMaxReplicas, scaling.ReasonMinReplicas, scaling.ReasonBudget, scaling.ReasonRateLimit,
	scaling.ReasonMaxInFlight, scaling.ReasonThroughputSaturated,
}

// scalingConditions sets ScalingActive, ScalingLimited and MetricsFresh.
func (d *evaluation) scalingConditions() {
	if d.observation.Stats != nil {
		d.setCondition(v1alpha1.ConditionMetricsFresh, metav1.ConditionTrue, v1alpha1.ReasonFresh, "")
	} else {
		d.setCondition(v1alpha1.ConditionMetricsFresh, metav1.ConditionFalse, v1alpha1.ReasonStale, "%s", d.observation.StatsError)
	}
	if d.observation.Pool.Spec.Autoscaling == nil {
		d.setCondition(v1alpha1.ConditionScalingActive, metav1.ConditionFalse, v1alpha1.ReasonManual, "spec.replicas says how many workers there are")
		d.setManualScalingLimited()
		return
	}
	if d.scalingDecision == nil { // it was not decided, and nothing is known anew
		return
	}
	decision := d.status.LastDecision
	switch d.scalingDecision.Reason {
	case scaling.ReasonPaused, scaling.ReasonDryRun, scaling.ReasonStatsUnavailable, scaling.ReasonFallback:
		d.setCondition(v1alpha1.ConditionScalingActive, metav1.ConditionFalse, string(d.scalingDecision.Reason), "%s", decision.Message)
	default:
		d.setCondition(v1alpha1.ConditionScalingActive, metav1.ConditionTrue, v1alpha1.ReasonAutoscaled, "")
	}
	if d.scalingDecision.Recommended != d.desired && slices.Contains(limitingReasons, d.scalingDecision.Reason) {
		d.setCondition(v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, string(d.scalingDecision.Reason), "%s", decision.Message)
		return
	}
	d.setCondition(v1alpha1.ConditionScalingLimited, metav1.ConditionFalse, v1alpha1.ReasonWithinBounds, "")
}

func (d *evaluation) setManualScalingLimited() {
	if wanted := d.observation.Pool.Spec.Replicas; wanted != nil && d.desired < *wanted && d.observation.Pool.DeletionTimestamp.IsZero() {
		d.setCondition(v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, string(scaling.ReasonBudget),
			"%d workers are asked for, the Policies allow %d", *wanted, d.replicaLimit)
		return
	}
	d.setCondition(v1alpha1.ConditionScalingLimited, metav1.ConditionFalse, v1alpha1.ReasonWithinBounds, "")
}

// drainConditions sets Draining and DrainTimedOut.
func (d *evaluation) drainConditions() {
	if number := d.status.Draining; number > 0 {
		d.setCondition(v1alpha1.ConditionDraining, metav1.ConditionTrue, v1alpha1.ReasonDrainsRunning, "%d workers finish what they have", number)
	} else {
		d.setCondition(v1alpha1.ConditionDraining, metav1.ConditionFalse, v1alpha1.ReasonDrained, "")
	}
	var late []string
	for _, r := range d.revisions {
		for _, w := range r.workers {
			if d.hasTimedOut(w) {
				late = append(late, w.Name)
			}
		}
	}
	if len(late) == 0 {
		d.setCondition(v1alpha1.ConditionDrainTimedOut, metav1.ConditionFalse, v1alpha1.ReasonDrained, "")
		return
	}
	d.setCondition(v1alpha1.ConditionDrainTimedOut, metav1.ConditionTrue, v1alpha1.ReasonDrainTimeout,
		"%d workers have not finished in %s: %s", len(late), d.drain.Timeout.Duration.Duration, summarizeNames(late))
}

// setDegraded sets Degraded.
func (d *evaluation) setDegraded() {
	for _, r := range d.revisions {
		if reason, message := r.startFailure(); reason != "" {
			d.setCondition(v1alpha1.ConditionDegraded, metav1.ConditionTrue, reason, "revision %s: %s", r.Name, message)
			return
		}
	}
	d.setCondition(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonReady, "")
}

// summarizeNames are the first of the names.
func summarizeNames(names []string) string {
	const few = 3
	slices.Sort(names)
	if len(names) > few {
		return strings.Join(names[:few], ", ") + fmt.Sprintf(" and %d more", len(names)-few)
	}
	return strings.Join(names, ", ")
}
