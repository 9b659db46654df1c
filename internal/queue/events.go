package queue

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Event tells of a transition.
type Event struct{ Type, Reason, Action, Message string }

// OfBroker tells that all Queues on the broker have the same to tell.
func (e Event) OfBroker() bool {
	return e.Reason == v1alpha1.EventBrokerUnreachable || e.Reason == v1alpha1.EventBrokerReachable
}

// told are what a condition may become that is worth an event. Without a reason, any
// will do; it is told again when the reason is another.
var told = []struct {
	condition string
	status    metav1.ConditionStatus
	because   string
	kind      string
	reason    string
}{
	{v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, "", corev1.EventTypeWarning, v1alpha1.EventBrokerUnreachable},
	{v1alpha1.ConditionConflict, metav1.ConditionTrue, "", corev1.EventTypeWarning, v1alpha1.ReasonOwnedByOtherQueue},
	{v1alpha1.ConditionDeadLettersPresent, metav1.ConditionTrue, "", corev1.EventTypeWarning, v1alpha1.EventDeadLetters},
	{v1alpha1.ConditionPolicyFullyEnforced, metav1.ConditionFalse, "", corev1.EventTypeWarning, v1alpha1.ReasonUnsupported},
	{v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, "", corev1.EventTypeNormal, v1alpha1.EventDeletionBlocked},
	{v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRateBelowArrivals, corev1.EventTypeWarning, v1alpha1.ReasonRateBelowArrivals},
	{v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRefusedByBroker, corev1.EventTypeWarning, v1alpha1.ReasonRefusedByBroker},
}

// Events are the transitions from one stored status to the next.
func Events(before, after *v1alpha1.QueueStatus) []Event {
	var all []Event
	for _, t := range told {
		was, is := meta.FindStatusCondition(before.Conditions, t.condition), meta.FindStatusCondition(after.Conditions, t.condition)
		if is == nil || is.Status != t.status || t.because != "" && is.Reason != t.because {
			continue
		}
		if was == nil || was.Status != is.Status || was.Reason != is.Reason {
			all = append(all, Event{t.kind, t.reason, "Observe", is.Message})
		}
	}
	if meta.IsStatusConditionFalse(before.Conditions, v1alpha1.ConditionBrokerReachable) &&
		meta.IsStatusConditionTrue(after.Conditions, v1alpha1.ConditionBrokerReachable) {
		all = append(all, Event{corev1.EventTypeNormal, v1alpha1.EventBrokerReachable, "Observe", "the broker answers"})
	}
	return all
}

// Done are the events of what was done on the broker. Drift that stays is told of once,
// when the status did not yet tell of it.
func Done(outcome *broker.EnsureResult, before, after *v1alpha1.QueueStatus) []Event {
	if outcome == nil {
		return nil
	}
	if outcome.Created {
		return []Event{{corev1.EventTypeNormal, v1alpha1.EventQueueCreated, "Ensure", "the queue was made on the broker"}}
	}
	if len(outcome.Drift) == 0 {
		return nil
	}
	if outcome.Corrected {
		return []Event{{corev1.EventTypeWarning, v1alpha1.EventDriftCorrected, "Ensure", "changed back: " + differences(outcome.Drift)}}
	}
	was, is := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionConfigSynced),
		meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionConfigSynced)
	if was != nil && is != nil && was.Message == is.Message {
		return nil
	}
	return []Event{{corev1.EventTypeWarning, v1alpha1.EventDriftFound, "Ensure", "changed by hand: " + differences(outcome.Drift)}}
}
