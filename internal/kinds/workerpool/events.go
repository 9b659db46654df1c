package workerpool

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// Actions of events.
const (
	actionScale     = "Scale"
	actionDrain     = "Drain"
	actionRollout   = "Rollout"
	actionReadStats = "ReadMetrics"
)

// conditionEventRules are the events about a condition that got a status.
var conditionEventRules = []struct {
	condition         string
	status            metav1.ConditionStatus
	eventType, reason string
	action            string
	// from is the status that the condition must have had before; empty for any other.
	from metav1.ConditionStatus
}{
	{v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, corev1.EventTypeWarning, v1alpha1.EventScalingLimited, actionScale, ""},
	{v1alpha1.ConditionMetricsFresh, metav1.ConditionFalse, corev1.EventTypeWarning, v1alpha1.EventMetricsLost, actionReadStats, metav1.ConditionTrue},
	{v1alpha1.ConditionDraining, metav1.ConditionTrue, corev1.EventTypeNormal, v1alpha1.EventDrainStarted, actionDrain, ""},
	{v1alpha1.ConditionDrainTimedOut, metav1.ConditionTrue, corev1.EventTypeWarning, v1alpha1.EventDrainTimedOut, actionDrain, ""},
	{v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, corev1.EventTypeWarning, v1alpha1.EventRolloutPaused, actionRollout, ""},
	{v1alpha1.ConditionMetricsFresh, metav1.ConditionTrue, corev1.EventTypeNormal, v1alpha1.EventMetricsRecovered, actionReadStats, metav1.ConditionFalse},
}

// events returns the events for all changes since the stored status.
func (r *report) events() []decision.Event {
	before := &r.Pool.Status
	var events []decision.Event
	if desired := r.demand.desired; desired != before.Desired {
		event := decision.NormalEvent(v1alpha1.EventScaled, actionScale, fmt.Sprintf("scaled from %d to %d workers", before.Desired, desired))
		if made := r.demand.decision; made != nil {
			event.Message += ": " + r.status.LastDecision.Message
			if made.Reason == scaling.ReasonBudget && desired < before.Desired {
				event.Reason = v1alpha1.EventPreempted
			}
		}
		events = append(events, event)
	}
	for _, rule := range conditionEventRules {
		was, is := meta.FindStatusCondition(before.Conditions, rule.condition), meta.FindStatusCondition(r.status.Conditions, rule.condition)
		changed := is != nil && is.Status == rule.status && (was == nil || was.Status != rule.status)
		if !changed || rule.from != "" && (was == nil || was.Status != rule.from) {
			continue
		}
		message := is.Message
		if rule.reason == v1alpha1.EventMetricsRecovered {
			message = "queue metrics can be read"
		}
		events = append(events, decision.Event{Type: rule.eventType, Reason: rule.reason, Action: rule.action, Message: message})
	}
	if !r.rollout.isEvaluated {
		return events
	}
	name, current := r.updated.Name, r.rollout.currentRevision
	switch {
	case before.UpdatedRevision != name && !r.rollout.isComplete:
		events = append(events, decision.NormalEvent(v1alpha1.EventRolloutStarted, actionRollout,
			fmt.Sprintf("revision %s replaces revision %s", name, current)))
	case before.CurrentRevision != "" && before.CurrentRevision != current:
		events = append(events, decision.NormalEvent(v1alpha1.EventRolloutCompleted, actionRollout,
			fmt.Sprintf("revision %s replaced revision %s", name, before.CurrentRevision)))
	}
	failure := r.rollout.history.FailureMessage
	if failure != "" && r.updated.History.FailureMessage == "" && recordedFailure(before, name) == "" {
		events = append(events, decision.WarningEvent(v1alpha1.EventRolledBack, actionRollout,
			fmt.Sprintf("rolled back to revision %s: %s", current, failure)))
	}
	return events
}
