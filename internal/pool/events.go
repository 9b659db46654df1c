package pool

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// What the operator did that an event is about.
const (
	actionScale     = "Scale"
	actionDrain     = "Drain"
	actionRollout   = "Rollout"
	actionReadStats = "ReadFigures"
)

// eventsSinceStatus are what has changed since the status that is stored.
func (d *evaluation) eventsSinceStatus() []Event {
	before := &d.observation.Pool.Status
	var all []Event
	tell := func(kind, reason, action, format string, values ...any) {
		all = append(all, Event{kind, reason, action, fmt.Sprintf(format, values...)})
	}
	if d.desired != before.Desired {
		d.addScaledEvent(tell)
	}
	for _, turn := range []struct {
		condition    string
		to           metav1.ConditionStatus
		kind, reason string
		action       string
	}{
		{v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, eventWarning, v1alpha1.EventScalingLimited, actionScale},
		{v1alpha1.ConditionMetricsFresh, metav1.ConditionFalse, eventWarning, v1alpha1.EventMetricsLost, actionReadStats},
		{v1alpha1.ConditionDraining, metav1.ConditionTrue, eventNormal, v1alpha1.EventDrainStarted, actionDrain},
		{v1alpha1.ConditionDrainTimedOut, metav1.ConditionTrue, eventWarning, v1alpha1.EventDrainTimedOut, actionDrain},
		{v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, eventWarning, v1alpha1.EventRolloutPaused, actionRollout},
	} {
		if turn.reason == v1alpha1.EventMetricsLost && !meta.IsStatusConditionTrue(before.Conditions, turn.condition) {
			continue // what was never there is not lost
		}
		if after := d.conditionChangedTo(turn.condition, turn.to); after != nil {
			tell(turn.kind, turn.reason, turn.action, "%s", after.Message)
		}
	}
	if meta.IsStatusConditionFalse(before.Conditions, v1alpha1.ConditionMetricsFresh) && d.conditionChangedTo(v1alpha1.ConditionMetricsFresh, metav1.ConditionTrue) != nil {
		tell(eventNormal, v1alpha1.EventMetricsBack, actionReadStats, "figures can be read")
	}
	d.addRolloutEvents(tell)
	return all
}

type eventRecorder func(kind, reason, action, format string, values ...any)

func (d *evaluation) addScaledEvent(tell eventRecorder) {
	before := d.observation.Pool.Status.Desired
	if d.scalingDecision == nil {
		tell(eventNormal, v1alpha1.EventScaled, actionScale, "from %d to %d workers", before, d.desired)
		return
	}
	reason := v1alpha1.EventScaled
	if d.scalingDecision.Reason == scaling.ReasonBudget && d.desired < before {
		reason = v1alpha1.EventPreempted
	}
	tell(eventNormal, reason, actionScale, "from %d to %d workers: %s", before, d.desired, d.status.LastDecision.Message)
}

func (d *evaluation) addRolloutEvents(tell eventRecorder) {
	before := &d.observation.Pool.Status
	switch {
	case !d.observation.Pool.DeletionTimestamp.IsZero() || d.problem != nil:
		return
	case before.UpdatedRevision != d.status.UpdatedRevision && !d.rolloutComplete:
		tell(eventNormal, v1alpha1.EventRolloutStarted, actionRollout, "revision %s replaces %s", d.updated.Name, d.status.CurrentRevision)
	case before.CurrentRevision != "" && before.CurrentRevision != d.status.CurrentRevision:
		tell(eventNormal, v1alpha1.EventRolloutCompleted, actionRollout, "revision %s has replaced %s", d.updated.Name, before.CurrentRevision)
	}
	if d.updated.newHistory.FailureMessage != "" && d.updated.History.FailureMessage == "" && d.recordedFailure() == "" {
		tell(eventWarning, v1alpha1.EventRolledBack, actionRollout, "back to revision %s: %s", d.status.CurrentRevision, d.updated.newHistory.FailureMessage)
	}
}

// conditionChangedTo is a condition that has this status, and had not.
func (d *evaluation) conditionChangedTo(kind string, to metav1.ConditionStatus) *metav1.Condition {
	after := meta.FindStatusCondition(d.status.Conditions, kind)
	if after == nil || after.Status != to || meta.IsStatusConditionPresentAndEqual(d.observation.Pool.Status.Conditions, kind, to) {
		return nil
	}
	return after
}
