package queue

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const warning, normal = corev1.EventTypeWarning, corev1.EventTypeNormal

// reportedTransitions are the changes of conditions that become events: a condition gets this status, or another reason with
// it. An empty conditionReason matches any reason. Events about a broker concern all its Queues at once, so they are routine.
var reportedTransitions = []struct {
	condition                               string
	status                                  metav1.ConditionStatus
	conditionReason, eventType, eventReason string
	isRoutine                               bool
}{
	{v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, "", warning, v1alpha1.EventBrokerUnreachable, true},
	{v1alpha1.ConditionConfigSynced, metav1.ConditionFalse, v1alpha1.ReasonOwnedByOtherQueue, warning, v1alpha1.ReasonOwnedByOtherQueue, false},
	{v1alpha1.ConditionDeadLettersPresent, metav1.ConditionTrue, "", warning, v1alpha1.EventDeadLetters, false},
	{v1alpha1.ConditionConfigSynced, metav1.ConditionFalse, v1alpha1.ReasonUnsupported, warning, v1alpha1.ReasonUnsupported, false},
	{v1alpha1.ConditionReplicated, metav1.ConditionFalse, v1alpha1.ReasonReplicasRefused, warning, v1alpha1.ReasonReplicasRefused, true},
	{v1alpha1.ConditionReplicated, metav1.ConditionFalse, v1alpha1.ReasonReplicasMissing, warning, v1alpha1.ReasonReplicasMissing, true},
	{v1alpha1.ConditionReplicated, metav1.ConditionFalse, v1alpha1.ReasonReplicasOffline, warning, v1alpha1.ReasonReplicasOffline, true},
	{v1alpha1.ConditionBlocked, metav1.ConditionTrue, "", normal, v1alpha1.EventDeletionBlocked, false},
	{v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRateBelowArrivals, warning, v1alpha1.ReasonRateBelowArrivals, false},
	{v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonMessagesEvictable, warning, v1alpha1.ReasonMessagesEvictable, true},
	{v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMessagesStranded, warning, v1alpha1.ReasonMessagesStranded, false},
	{v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRefusedByBroker, warning, v1alpha1.ReasonRefusedByBroker, false},
}

// reportedRecoveries are the conditions whose change from False to True becomes an event.
var reportedRecoveries = []struct{ condition, reason, message string }{
	{v1alpha1.ConditionBrokerReachable, v1alpha1.EventBrokerReachable, "The broker answers again"},
	{v1alpha1.ConditionReplicated, v1alpha1.ReasonFullyReplicated, "All replicas of the queue have all messages"},
}

func transitionEvents(before, after *v1alpha1.QueueStatus) []decision.Event {
	var events []decision.Event
	for _, t := range reportedTransitions {
		old, current := meta.FindStatusCondition(before.Conditions, t.condition), meta.FindStatusCondition(after.Conditions, t.condition)
		if current == nil || current.Status != t.status || t.conditionReason != "" && current.Reason != t.conditionReason {
			continue
		}
		if old == nil || old.Status != current.Status || old.Reason != current.Reason {
			events = append(events, decision.Event{Type: t.eventType, Reason: t.eventReason, Action: "Observe", Message: current.Message, Routine: t.isRoutine})
		}
	}
	for _, r := range reportedRecoveries {
		if meta.IsStatusConditionFalse(before.Conditions, r.condition) && meta.IsStatusConditionTrue(after.Conditions, r.condition) {
			events = append(events, decision.RoutineEvent(r.reason, "Observe", r.message))
		}
	}
	if after.Engine == v1alpha1.EngineAsynq && before.Engine != after.Engine {
		events = append(events, decision.Event{Type: warning, Reason: v1alpha1.EventExperimentalEngine, Action: "Observe", Message: asynqWarning, Routine: true})
	}
	return events
}

// comparisonEvents returns the events of comparing the queue with its spec.
func comparisonEvents(result *broker.EnsureResult, before, after *v1alpha1.QueueStatus) []decision.Event {
	if result == nil {
		return nil
	}
	events := driftEvents(result, before, after)
	if result.ErasedDelayed {
		known := ""
		if before.Delayed != nil {
			known = fmt.Sprintf(": the queue had %d before", *before.Delayed)
		}
		events = append(events, ensureEvent(warning, v1alpha1.EventDelayedErased, "Someone erased the delayed messages on the broker"+known)...)
	}
	return events
}

// driftEvents reports drift that is not corrected once, when the status does not show it yet.
func driftEvents(result *broker.EnsureResult, before, after *v1alpha1.QueueStatus) []decision.Event {
	switch {
	case result.Created:
		return ensureEvent(normal, v1alpha1.EventQueueCreated, "Created the queue on the broker")
	case len(result.Drift) == 0:
		return nil
	case result.Corrected:
		return ensureEvent(warning, v1alpha1.EventDriftCorrected, "Changed back to the spec: "+formatDrift(result.Drift))
	}
	old, current := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionConfigSynced),
		meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionConfigSynced)
	if old != nil && current != nil && old.Message == current.Message {
		return nil
	}
	return ensureEvent(warning, v1alpha1.EventDriftFound, "Changed by someone else: "+formatDrift(result.Drift))
}

func ensureEvent(kind, reason, message string) []decision.Event {
	return []decision.Event{{Type: kind, Reason: reason, Action: "Ensure", Message: message}}
}

func requestEvent(request string, number int64, kept error) decision.Event {
	verb := "Purged "
	if request == RequestRequeue {
		verb = "Requeued "
	}
	event := decision.NormalEvent("DeadLetters"+request+"d", request, verb+countNoun(number, "dead letter"))
	if kept != nil {
		event.Type, event.Message = warning, event.Message+"; not all: "+kept.Error()
	}
	return event
}
