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
	actionScale = "Scale"
	actionDrain = "Drain"
	actionRoll  = "Rollout"
	actionRead  = "ReadFigures"
)

// events are what has changed since the status that is stored.
func (d *decision) events() []Event {
	before := &d.in.Pool.Status
	var all []Event
	tell := func(kind, reason, action, format string, values ...any) {
		all = append(all, Event{kind, reason, action, fmt.Sprintf(format, values...)})
	}
	if d.desired != before.Desired {
		d.tellScaled(tell)
	}
	for _, turn := range []struct {
		condition    string
		to           metav1.ConditionStatus
		kind, reason string
		action       string
	}{
		{v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, warning, v1alpha1.EventScalingLimited, actionScale},
		{v1alpha1.ConditionMetricsFresh, metav1.ConditionFalse, warning, v1alpha1.EventMetricsLost, actionRead},
		{v1alpha1.ConditionDraining, metav1.ConditionTrue, normal, v1alpha1.EventDrainStarted, actionDrain},
		{v1alpha1.ConditionDrainTimedOut, metav1.ConditionTrue, warning, v1alpha1.EventDrainTimedOut, actionDrain},
		{v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, warning, v1alpha1.EventRolloutPaused, actionRoll},
	} {
		if turn.reason == v1alpha1.EventMetricsLost && !meta.IsStatusConditionTrue(before.Conditions, turn.condition) {
			continue // what was never there is not lost
		}
		if after := d.turned(turn.condition, turn.to); after != nil {
			tell(turn.kind, turn.reason, turn.action, "%s", after.Message)
		}
	}
	if meta.IsStatusConditionFalse(before.Conditions, v1alpha1.ConditionMetricsFresh) && d.turned(v1alpha1.ConditionMetricsFresh, metav1.ConditionTrue) != nil {
		tell(normal, v1alpha1.EventMetricsBack, actionRead, "figures can be read")
	}
	d.tellRollout(tell)
	return all
}

type teller func(kind, reason, action, format string, values ...any)

func (d *decision) tellScaled(tell teller) {
	before := d.in.Pool.Status.Desired
	if d.decided == nil {
		tell(normal, v1alpha1.EventScaled, actionScale, "from %d to %d workers", before, d.desired)
		return
	}
	reason := v1alpha1.EventScaled
	if d.decided.Reason == scaling.ReasonBudget && d.desired < before {
		reason = v1alpha1.EventPreempted
	}
	tell(normal, reason, actionScale, "from %d to %d workers: %s", before, d.desired, d.status.LastDecision.Message)
}

func (d *decision) tellRollout(tell teller) {
	before := &d.in.Pool.Status
	switch {
	case !d.in.Pool.DeletionTimestamp.IsZero() || d.problem != nil:
		return
	case before.UpdatedRevision != d.status.UpdatedRevision && !d.complete:
		tell(normal, v1alpha1.EventRolloutStarted, actionRoll, "revision %s replaces %s", d.updated.Name, d.status.CurrentRevision)
	case before.CurrentRevision != "" && before.CurrentRevision != d.status.CurrentRevision:
		tell(normal, v1alpha1.EventRolloutCompleted, actionRoll, "revision %s has replaced %s", d.updated.Name, before.CurrentRevision)
	}
	if d.updated.past.Failed != "" && d.updated.Past.Failed == "" && d.toldFailure() == "" {
		tell(warning, v1alpha1.EventRolledBack, actionRoll, "back to revision %s: %s", d.status.CurrentRevision, d.updated.past.Failed)
	}
}

// turned is a condition that has this status, and had not.
func (d *decision) turned(kind string, to metav1.ConditionStatus) *metav1.Condition {
	after := meta.FindStatusCondition(d.status.Conditions, kind)
	if after == nil || after.Status != to || meta.IsStatusConditionPresentAndEqual(d.in.Pool.Status.Conditions, kind, to) {
		return nil
	}
	return after
}
