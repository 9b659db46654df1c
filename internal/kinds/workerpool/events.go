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

// eventsSinceStatus returns the events for all changes since the stored status.
func (e *evaluation) eventsSinceStatus() []decision.Event {
	before := &e.observation.Pool.Status
	var events []decision.Event
	if e.desired != before.Desired {
		events = append(events, scaledEvent(before.Desired, e.desired, e.scalingDecision, e.status.LastDecision))
	}
	events = append(events, conditionEvents(before.Conditions, e.status.Conditions)...)
	return append(events, e.rolloutEvents()...)
}

func scaledEvent(before, desired int32, d *scaling.Decision, explanation *v1alpha1.ScaleDecision) decision.Event {
	event := decision.NormalEvent(v1alpha1.EventScaled, actionScale, fmt.Sprintf("scaled from %d to %d workers", before, desired))
	if d != nil {
		event.Message += ": " + explanation.Message
		if d.Reason == scaling.ReasonBudget && desired < before {
			event.Reason = v1alpha1.EventPreempted
		}
	}
	return event
}

func conditionEvents(before, after []metav1.Condition) []decision.Event {
	var events []decision.Event
	for _, rule := range conditionEventRules {
		was, is := meta.FindStatusCondition(before, rule.condition), meta.FindStatusCondition(after, rule.condition)
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
	return events
}

func (e *evaluation) rolloutEvents() []decision.Event {
	if e.hasNoRollout() {
		return nil
	}
	var events []decision.Event
	before, updated := &e.observation.Pool.Status, e.updated
	switch {
	case before.UpdatedRevision != e.status.UpdatedRevision && !e.rolloutComplete:
		events = append(events, decision.NormalEvent(v1alpha1.EventRolloutStarted, actionRollout,
			fmt.Sprintf("revision %s replaces revision %s", updated.Name, e.status.CurrentRevision)))
	case before.CurrentRevision != "" && before.CurrentRevision != e.status.CurrentRevision:
		events = append(events, decision.NormalEvent(v1alpha1.EventRolloutCompleted, actionRollout,
			fmt.Sprintf("revision %s replaced revision %s", updated.Name, before.CurrentRevision)))
	}
	failure := updated.newHistory.FailureMessage
	if failure != "" && updated.History.FailureMessage == "" && recordedFailure(before, updated.Name) == "" {
		events = append(events, decision.WarningEvent(v1alpha1.EventRolledBack, actionRollout,
			fmt.Sprintf("rolled back to revision %s: %s", e.status.CurrentRevision, failure)))
	}
	return events
}
